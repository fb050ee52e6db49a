"""Fixtures for all tests of commands."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from energy_callbacks.cli import COMMANDS
from tests.charts import no_charts  # noqa: F401 - a fixture
from tests.integrations.processes import Forking


@contextmanager
def cards() -> Iterator[None]:
    """Make GPUs visible, also to the processes that tests start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        yield


@pytest.fixture(scope="module", autouse=True)
def _surroundings() -> Iterator[None]:
    with cards():
        yield


@pytest.fixture(scope="session")
def forking() -> Iterator[Forking]:
    """Start commands in forks of one process."""
    with cards():
        one = Forking.importing(
            "matplotlib.figure", *(f"energy_callbacks.cli.{name}" for name in COMMANDS)
        )
    yield one
    one.close()
