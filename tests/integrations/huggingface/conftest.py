"""These tests leave nothing in the repository."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``evaluate`` by itself lets transformers 5 make a folder ``runs`` where one stands."""
    monkeypatch.chdir(tmp_path)
