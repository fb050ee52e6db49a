"""Each test in an empty folder: without a TensorBoard callback the run folder is ./energy_runs."""

from pathlib import Path

import pytest

pytest.importorskip("keras")


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
