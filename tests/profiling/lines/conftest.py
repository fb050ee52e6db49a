"""What tests of lines share."""

import sys

import pytest


@pytest.fixture
def untraced():
    """Whatever traces the tests, as coverage does, is back afterwards."""
    before = sys.gettrace()
    sys.settrace(None)
    yield
    sys.settrace(before)
