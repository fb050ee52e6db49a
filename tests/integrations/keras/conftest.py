"""Each test in an empty folder: without a TensorBoard callback the run folder is ./energy_runs."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("keras")

# Keras' TensorBoard callback writes with TensorFlow itself, not with TensorBoard's stub of it.
sys.modules.pop("tensorboard.compat.notf", None)


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
