"""Lightning adapter: translates hooks into events of the meter, and nothing else.

Light until the callback is asked for: Lightning imports ``factory`` for every Trainer.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from energy_callbacks_lightning.callback import GpuEnergyCallback

__all__ = ["GpuEnergyCallback"]


def __getattr__(name: str) -> object:
    """The callback, imported when first used.

    Raises:
        AttributeError: for any other name.
        ModuleNotFoundError: for ``lightning``, where it is not installed.
    """
    if name != "GpuEnergyCallback":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # First: where Lightning is missing, this one says so, and not a library that comes with it.
    from energy_callbacks_lightning import bases  # noqa: F401
    from energy_callbacks_lightning.callback import GpuEnergyCallback

    return GpuEnergyCallback
