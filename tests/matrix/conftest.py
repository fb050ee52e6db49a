"""What the tests of matrices share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.matrix.lab import Lab


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """A folder with a matrix, on a machine without a GPU."""
    one = Lab(tmp_path)
    yield one
    one.close()
