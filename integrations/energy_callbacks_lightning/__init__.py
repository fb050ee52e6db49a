"""Lightning adapter: translates hooks into calls of the meter, and searches for a batch size.

The modules of the public names are imported when a name is first used, because Lightning imports
this package (for ``factory``) with every Trainer.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from energy_callbacks_lightning.callback import GpuEnergyCallback
    from energy_callbacks_lightning.tuning.before_fit import tune_batch_size
    from energy_callbacks_lightning.tuning.loaders import with_batch_size
    from energy_callbacks_lightning.tuning.tuner import BatchSizeTuner

__all__ = ["BatchSizeTuner", "GpuEnergyCallback", "tune_batch_size", "with_batch_size"]

_HOMES = {
    "BatchSizeTuner": "tuning.tuner",
    "GpuEnergyCallback": "callback",
    "tune_batch_size": "tuning.before_fit",
    "with_batch_size": "tuning.loaders",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used.

    Raises:
        AttributeError: for any other name.
        ModuleNotFoundError: for ``lightning``, if it is not installed.
    """
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Imported first: if Lightning is missing, the error names Lightning, not one of its libraries.
    from energy_callbacks_lightning import bases  # noqa: F401

    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
