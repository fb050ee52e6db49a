"""Measures the energy of a training: logs joules with the loss, and writes a report at the end.

Each framework has a module with its callback, such as ``energy_callbacks.lightning``. Loops without
a framework use an ``EnergyMeter``.
"""

import sys

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

_FRAMEWORKS = "energy_callbacks.lightning, .keras or .huggingface"
# Public names that users may look for in this module, and the modules that have them.
_ELSEWHERE = {
    "GpuEnergyCallback": _FRAMEWORKS,
    "tune_batch_size": _FRAMEWORKS + ", or energy_callbacks.tuning for other loops",
    "BatchSizeTuner": "energy_callbacks.lightning",
    **dict.fromkeys(("EnergyReport", "build", "load", "save", "view"), "energy_callbacks.report"),
    **dict.fromkeys(
        ("HostProfiler", "KernelProfiler", "LineProfiler", "StepPhases"),
        "energy_callbacks.profiling",
    ),
}


def __getattr__(name: str) -> object:
    """Raise an error; for names of other modules, its message names these modules.

    ``from energy_callbacks import ...`` replaces the message of an ``AttributeError``. Therefore
    the import system gets an ``ImportError`` for these names. Others, such as ``hasattr``, expect
    an ``AttributeError``.

    Raises:
        ImportError: if another module has the name, and the name is being imported.
        AttributeError: otherwise.
    """
    if name not in _ELSEWHERE:
        raise AttributeError(f"module 'energy_callbacks' has no attribute {name!r}")
    message = f"'energy_callbacks' has no {name!r}; import it from {_ELSEWHERE[name]}"
    # The function of importlib that handles the names after "import" (CPython 3.11 to 3.14).
    if sys._getframe(1).f_code.co_name == "_handle_fromlist":  # noqa: SLF001
        raise ImportError(message, name=__name__)
    raise AttributeError(message)


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
