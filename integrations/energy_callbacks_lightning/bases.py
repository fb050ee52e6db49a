"""The callback base classes of ``lightning`` and ``pytorch_lightning``, whichever is installed.

``Trainer(callbacks=callback)`` without a list accepts only an instance of its own package's class,
so our callback inherits from both if both are installed (0.1 s more to import).
"""

import importlib
import importlib.util
from types import ModuleType

PACKAGES = ("lightning.pytorch", "pytorch_lightning")


def installed() -> tuple[ModuleType, ...]:
    """Return the Lightning packages of this environment.

    Raises:
        ModuleNotFoundError: for ``lightning``, if neither is installed.
    """
    names = [name for name in PACKAGES if importlib.util.find_spec(name.partition(".")[0])]
    return tuple(importlib.import_module(name) for name in names or PACKAGES[:1])


packages = installed()
bases: tuple[type, ...] = tuple(package.Callback for package in packages)
version: str = packages[0].__version__
