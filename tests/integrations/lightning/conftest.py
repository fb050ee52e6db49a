"""These tests need no TensorFlow."""

from collections.abc import Iterator

import pytest

from tests.integrations.no_tensorflow import keep_tensorflow_out
from tests.integrations.processes import Forking

keep_tensorflow_out()


@pytest.fixture(scope="session")
def scripts() -> Iterator[Forking]:
    """Starts scripts that find Lightning imported."""
    forking = Forking("tests.integrations.lightning.lab")
    yield forking
    forking.close()
