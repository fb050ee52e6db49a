"""Fixtures for all tests of commands."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from energy_callbacks.cli import COMMANDS
from tests.charts import no_charts  # noqa: F401 - a fixture
from tests.integrations.processes import Forking


@contextmanager
def at_a_terminal() -> Iterator[None]:
    """Surroundings of a user at a terminal of a machine with cards: also for what tests start.

    Ctrl-C ends a program. A shell lets its background jobs ignore it, and a new program ignores
    what its parent does: whoever started the tests may.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module", autouse=True)
def _surroundings() -> Iterator[None]:
    with at_a_terminal():
        yield


@pytest.fixture(scope="session")
def forking() -> Iterator[Forking]:
    """Starts commands."""
    with at_a_terminal():
        one = Forking.importing(
            "matplotlib.figure", *(f"energy_callbacks.cli.{name}" for name in COMMANDS)
        )
    yield one
    one.close()
