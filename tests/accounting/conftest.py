"""Fixtures for all tests of accounting."""

from pathlib import Path

import pytest

from energy_callbacks.testing import FakeClock
from tests.accounting.books import CPU, START_S, Books, train, wave
from tests.charts import no_charts  # noqa: F401 - a fixture


@pytest.fixture
def clock() -> FakeClock:
    """Virtual time."""
    return FakeClock(start_s=START_S)


@pytest.fixture
def trained(tmp_path: Path, clock: FakeClock) -> Books:
    """The journal of a training of 50 s."""
    books = Books(tmp_path, wave(clock), wave(clock, CPU, 0.25), clock=clock)
    train(books)
    books.finish()
    return books
