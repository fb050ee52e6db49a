"""Calls a function as soon as the program has imported a module; does not import the module."""

import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from energy_callbacks.core.guard import logger, pass_on_signals


def when_imported(name: str, then: Callable[[ModuleType], None]) -> Callable[[], None]:
    """Call ``then(module)``: now if the module is already imported, otherwise after its import.

    Args:
        name: full name of the module.
        then: function to call once, with the module as its argument. After an import, it is called
            on the thread that imported the module, and its exceptions are logged.

    Returns:
        A function that cancels the call if the import has not begun.
    """
    module = sys.modules.get(name)
    if module is not None and not getattr(module.__spec__, "_initializing", False):
        then(module)
        return lambda: None
    finder = _Finder(name, then)
    sys.meta_path.insert(0, finder)
    return finder.remove


class _Finder(MetaPathFinder):
    """An import finder that finds one module as Python does, and wraps the module's loader."""

    def __init__(self, name: str, then: Callable[[ModuleType], None]) -> None:
        self._name, self._then = name, then

    def remove(self) -> None:
        """Remove this finder from ``sys.meta_path``, so that later imports do not use it."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(self, fullname: str, path: Any, _target: Any = None) -> ModuleSpec | None:
        """Return the module's spec with a wrapped loader; ``None`` for other modules."""
        if fullname != self._name or self not in sys.meta_path:
            return None
        self.remove()
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
                    logger.warning("%s does not record this module", self._name, exc_info=True)

            loader.exec_module = exec_module
        return spec
