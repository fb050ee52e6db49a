"""Public import path of the callback and the batch-size search for Lightning.

The batch-size search is imported when one of its names is first accessed.
"""

from typing import TYPE_CHECKING, Final

from energy_callbacks.core.extras import requires

with requires("lightning", "pytorch_lightning", extra="lightning"):
    from energy_callbacks_lightning import GpuEnergyCallback as GpuEnergyCallback

if TYPE_CHECKING:
    from energy_callbacks_lightning import BatchSizeTuner as BatchSizeTuner
    from energy_callbacks_lightning import tune_batch_size as tune_batch_size
    from energy_callbacks_lightning import with_batch_size as with_batch_size

_LATER: Final = ("BatchSizeTuner", "tune_batch_size", "with_batch_size")


def __getattr__(name: str) -> object:
    """Return a class or function of the batch-size search, importing the search if necessary.

    Raises:
        AttributeError: for any other name.
    """
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import energy_callbacks_lightning

    return getattr(energy_callbacks_lightning, name)
