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


HERE = Path(__file__).parent
FORKING = pytest.StashKey[Forking]()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Scripts are forks of this process as it is now, with the framework imported."""
    if any(item.path.is_relative_to(HERE) for item in session.items):
        session.stash[FORKING] = Forking.this_process()


@pytest.fixture(scope="session")
def scripts(request: pytest.FixtureRequest) -> Iterator[Forking]:
    """Starts scripts."""
    forking = request.session.stash[FORKING]
    yield forking
    forking.close()
