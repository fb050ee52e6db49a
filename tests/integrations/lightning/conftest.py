"""These tests need no TensorFlow."""

import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integrations.no_tensorflow import keep_tensorflow_out
from tests.integrations.processes import Forking

keep_tensorflow_out()

HERE = Path(__file__).parent
FORKING = pytest.StashKey[Forking]()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Scripts are forks of this process as it is now, with the framework imported."""
    if any(item.path.is_relative_to(HERE) for item in session.items):
        session.stash[FORKING] = Forking.this_process()


@pytest.fixture(scope="session", autouse=True)
def _packages_are_asked_once() -> Iterator[None]:
    """Each ``Trainer`` reads what all installed packages offer to it, for 25 ms."""
    from lightning.fabric.utilities import registry

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "entry_points", functools.cache(registry.entry_points))
        yield


@pytest.fixture(scope="session")
def scripts(request: pytest.FixtureRequest) -> Iterator[Forking]:
    """Starts scripts."""
    forking = request.session.stash[FORKING]
    yield forking
    forking.close()
