"""Profilers, which measure parts of a training in detail and add their results to its report.

::

    GpuEnergyCallback(profilers=[KernelProfiler(), "lines"])   # in all frameworks
    EnergyMeter(profilers=["phases", HostProfiler(steps=50)])

A name stands for an object with its default settings. Each module is imported when one of its names
is first used.
"""

from pkgutil import resolve_name
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from energy_callbacks.profiling.host import HostProfiler
    from energy_callbacks.profiling.kernels import KernelProfiler
    from energy_callbacks.profiling.lines import LineProfiler
    from energy_callbacks.profiling.phases import StepPhases
    from energy_callbacks.profiling.zoo.quick import QuickProfile, run_quick_profile

__all__ = [
    "HostProfiler",
    "KernelProfiler",
    "LineProfiler",
    "QuickProfile",
    "StepPhases",
    "run_quick_profile",
]

_MODULES: Final = {
    "HostProfiler": "host",
    "KernelProfiler": "kernels",
    "LineProfiler": "lines",
    "QuickProfile": "zoo.quick",
    "StepPhases": "phases",
    "run_quick_profile": "zoo.quick",
}


def __getattr__(name: str) -> object:
    """Return a public class or function, importing its module if necessary.

    Raises:
        AttributeError: for any other name.
    """
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return resolve_name(f"{__name__}.{_MODULES[name]}:{name}")
