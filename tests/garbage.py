"""Collections of garbage pass over what the tests have imported.

``gc.collect()`` looks at every object of every imported module: half a second where a framework is
among them. Searches for a batch size and some Trainers call it for each trial or training.
"""

import gc
import sys

import pytest

# As many new modules as make it worth looking through all objects once more.
_MANY = 200


class Freezer:
    """A plugin of pytest: freezes what is there whenever many modules have been imported."""

    def __init__(self) -> None:
        self._modules = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self) -> None:
        """The test files and their imports; before this process is forked."""
        self._freeze()

    def pytest_runtest_teardown(self) -> None:
        """What a test has imported, where it is much."""
        if len(sys.modules) > self._modules + _MANY:
            self._freeze()

    def _freeze(self) -> None:
        self._modules = len(sys.modules)
        freeze()


def freeze() -> None:
    """No collection looks at what is there now; else it also copies all memory of a fork."""
    gc.collect()
    gc.freeze()
