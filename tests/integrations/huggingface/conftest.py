"""These tests need no TensorFlow, and leave nothing in the repository."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integrations.no_tensorflow import keep_tensorflow_out
from tests.integrations.processes import Forking

keep_tensorflow_out()


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``evaluate`` by itself lets transformers 5 make a folder ``runs`` where one stands."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def scripts() -> Iterator[Forking]:
    """Starts scripts that find the Trainer imported."""
    forking = Forking("tests.integrations.huggingface.lab")
    yield forking
    forking.close()
