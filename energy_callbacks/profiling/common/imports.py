"""Calls a function when a module has been imported, without importing it."""

import logging
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from energy_callbacks.core.guard import pass_on_signals

logger = logging.getLogger("energy_callbacks")


def when_imported(name: str, then: Callable[[ModuleType], None]) -> Callable[[], None]:
    """Call a function with a module: at once if it has been imported, else right after.

    Args:
        name: of the module.
        then: called once, on the thread that imports.

    Returns:
        Forgets about it; to be called any time, also after.
    """
    if (module := sys.modules.get(name)) is not None and _is_ready(module):
        then(module)
        return lambda: None
    finder = _Finder(name, then)
    sys.meta_path.insert(0, finder)
    return finder.forget


def _is_ready(module: ModuleType) -> bool:
    return not getattr(module.__spec__, "_initializing", False)


class _Finder(MetaPathFinder):
    """Finds nothing itself: it lets the module's loader report when it is done."""

    def __init__(self, name: str, then: Callable[[ModuleType], None]) -> None:
        self._name, self._then = name, then

    def forget(self) -> None:
        """No longer wait."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,  # noqa: ARG002 - of the protocol
    ) -> ModuleSpec | None:
        """The module's spec with a loader that reports; ``None`` for other modules."""
        if fullname != self._name or self not in sys.meta_path:
            return None
        self.forget()
        spec = PathFinder.find_spec(fullname, path)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            execute = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                try:
                    self._then(module)
                except Exception:
                    pass_on_signals()
                    logger.warning("%s is not followed", self._name, exc_info=True)

            loader.exec_module = exec_module
        return spec
