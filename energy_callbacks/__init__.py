"""Measures the energy of a training: logs joules with the loss, and writes a report at the end.

Each framework has a module with its callback, such as ``energy_callbacks.lightning``. Loops without
a framework use an ``EnergyMeter``.
"""

from energy_callbacks.core.config import EnergyConfig
from energy_callbacks.core.errors import (
    EnergyCallbacksError,
    JournalError,
    MissingExtraError,
    ReadingMissed,
    SourceError,
    SourceLost,
    SourceUnavailable,
)
from energy_callbacks.core.records import Energy
from energy_callbacks.meter import EnergyMeter
from energy_callbacks.version import __version__


def __getattr__(name: str) -> object:
    """Raise an error; for ``GpuEnergyCallback``, its message names the modules with the class.

    Raises:
        AttributeError: always.
    """
    where = "; import it from energy_callbacks.lightning, .keras or .huggingface"
    raise AttributeError(
        f"module 'energy_callbacks' has no attribute {name!r}"
        + (where if name == "GpuEnergyCallback" else "")
    )


__all__ = [
    "Energy",
    "EnergyCallbacksError",
    "EnergyConfig",
    "EnergyMeter",
    "JournalError",
    "MissingExtraError",
    "ReadingMissed",
    "SourceError",
    "SourceLost",
    "SourceUnavailable",
    "__version__",
]
