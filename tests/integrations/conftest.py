"""What the tests of all frameworks share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.charts import no_charts  # noqa: F401 - a fixture
from tests.fake_nvml.fixtures import fake_nvml  # noqa: F401 - a fixture
from tests.integrations.processes import Forking

pytest.register_assert_rewrite("tests.integrations.contract")

# Their scripts are forks of the process of the tests; for Keras see its own conftest.py.
FORKED = [Path(__file__).parent / name for name in ("lightning", "huggingface")]
SERVER = pytest.StashKey[Forking]()


def pytest_collection_finish(session: pytest.Session) -> None:
    """This process has imported the framework now, and trained nothing yet."""
    if any(item.path.is_relative_to(folder) for item in session.items for folder in FORKED):
        session.stash[SERVER] = Forking.this_process()


@pytest.fixture(scope="session")
def scripts(request: pytest.FixtureRequest) -> Iterator[Forking]:
    """Starts scripts that find the framework imported."""
    forking = request.session.stash[SERVER]
    yield forking
    forking.close()
