"""Lightning adapter: translates hooks into events of the meter, and searches for a batch size.

Light until one of its names is asked for: Lightning imports ``factory`` for every Trainer.
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
    """A public name, imported when first used.

    Raises:
        AttributeError: for any other name.
        ModuleNotFoundError: for ``lightning``, if it is not installed.
    """
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # First: if Lightning is missing, this one says so, and not a library that comes with it.
    from energy_callbacks_lightning import bases  # noqa: F401

    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
