"""These tests leave nothing in the repository."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change the folder: in transformers 5 ``evaluate`` alone creates a folder ``runs``."""
    monkeypatch.chdir(tmp_path)
