"""These tests need no TensorFlow, and leave nothing in the repository."""

from pathlib import Path

import pytest

from tests.integrations.no_tensorflow import keep_tensorflow_out

keep_tensorflow_out()


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``evaluate`` by itself lets transformers 5 make a folder ``runs`` where one stands."""
    monkeypatch.chdir(tmp_path)
