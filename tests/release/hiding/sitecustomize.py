"""Hides packages from a process and from its children, as if they were not installed.

Python imports this module at its start if its folder is in ``PYTHONPATH``. ``HIDDEN_PACKAGES`` has
the names of the packages, separated by spaces.
"""

import os
import sys
from typing import Any


class Hiding:
    """A finder of modules that finds no module of a hidden package.

    Args:
        finder: finds all other modules.
        names: names of the hidden packages.
    """

    def __init__(self, finder: Any, names: frozenset[str]) -> None:
        self._finder = finder
        self._names = names

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Return the specification of a module, ``None`` if it is hidden or does not exist."""
        if name.partition(".")[0] in self._names:
            return None
        return self._finder.find_spec(name, path, target)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._finder, name)


hidden = frozenset(os.environ.get("HIDDEN_PACKAGES", "").split())
sys.meta_path[:] = [Hiding(finder, hidden) for finder in sys.meta_path]
