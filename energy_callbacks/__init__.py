"""Energy as a training metric: joules beside the loss, a report at the end.

For a framework import its callback from its module: ``energy_callbacks.lightning``. A plain loop
drives an ``EnergyMeter``.
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
    """Explain where to import the callbacks from.

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
