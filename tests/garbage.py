"""Excludes imported modules from garbage collection.

``gc.collect()`` visits every object of every imported module, which takes half a second with a
framework. Batch-size searches and some Trainers call it for each trial or training.
"""

import gc
import sys

import pytest

# Number of new modules from which freezing again takes less time than it saves.
_MANY = 200


class Freezer:
    """A pytest plugin that freezes all objects whenever many modules have been imported."""

    def __init__(self) -> None:
        self._modules = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self) -> None:
        """Freeze the test files and their imports, before this process is forked."""
        self._freeze()

    def pytest_runtest_teardown(self) -> None:
        """Freeze what a test has imported, if it is much."""
        if len(sys.modules) > self._modules + _MANY:
            self._freeze()

    def _freeze(self) -> None:
        self._modules = len(sys.modules)
        freeze()


def freeze() -> None:
    """Exclude all present objects from collections, which would also copy the memory of a fork."""
    gc.collect()
    gc.freeze()
