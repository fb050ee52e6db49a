"""Fixtures that the tests of all frameworks share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from energy_callbacks.accounting import journal_thread
from tests.charts import no_charts  # noqa: F401 - a fixture
from tests.fake_nvml.fixtures import fake_nvml  # noqa: F401 - a fixture
from tests.integrations.processes import Forking
from tests.trackers.fixtures import (  # noqa: F401 - fixtures
    mlflow_uri,
    mlflow_url,
    wandb_folder,
    wandb_offline,
)

pytest.register_assert_rewrite("tests.integrations.contract")

# The scripts of these tests run in forks of the test process.
FORKED = [Path(__file__).parent / name for name in ("keras", "lightning", "huggingface")]
SERVER = pytest.StashKey[Forking]()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fork the server: this process has imported the framework, but computed nothing."""
    if any(item.path.is_relative_to(folder) for item in session.items for folder in FORKED):
        session.stash[SERVER] = Forking.this_process()


@pytest.fixture(scope="session", autouse=True)
def _ends_may_take_long() -> Iterator[None]:
    """Let a report wait for the end of its training as long as a busy machine needs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal_thread, "_OVER_S", 60.0)
        yield


@pytest.fixture(scope="session")
def scripts(request: pytest.FixtureRequest) -> Iterator[Forking]:
    """Return a server whose forks have already imported the framework."""
    forking = request.session.stash[SERVER]
    yield forking
    forking.close()
