"""Imports the callback base classes of ``lightning`` and ``pytorch_lightning``, if installed.

If ``Trainer(callbacks=...)`` receives a single callback instead of a list, Lightning accepts only a
callback of the Trainer's own package. So our callback inherits from the classes of both packages,
if both are installed. Importing both takes 0.1 s longer than importing one.
"""

import importlib
import importlib.util
from types import ModuleType

PACKAGES = ("lightning.pytorch", "pytorch_lightning")


def installed() -> tuple[ModuleType, ...]:
    """Import and return the installed Lightning packages.

    Raises:
        ModuleNotFoundError: if neither package is installed; the error names ``lightning``.
    """
    names = [name for name in PACKAGES if importlib.util.find_spec(name.partition(".")[0])]
    return tuple(importlib.import_module(name) for name in names or PACKAGES[:1])


packages = installed()
bases: tuple[type, ...] = tuple(package.Callback for package in packages)
version: str = packages[0].__version__
