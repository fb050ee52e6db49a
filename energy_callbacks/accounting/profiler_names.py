"""Maps the names of profilers to their classes, which are imported when they are first needed."""

from collections.abc import Mapping
from dataclasses import dataclass
from pkgutil import resolve_name
from types import MappingProxyType
from typing import Any, Final, Literal

ProfilerName = Literal["kernels", "lines", "phases", "host"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfilerEntry:
    """A profiler that can be chosen by name.

    Attributes:
        class_name: name of the class in ``energy_callbacks.profiling``.
        shows: what the profiler shows; part of the command's help.
        is_default: whether the command ``profile`` uses the profiler if the user chooses none.
    """

    class_name: str
    shows: str
    is_default: bool = False


PROFILERS: Final[Mapping[str, ProfilerEntry]] = MappingProxyType(
    {
        "kernels": ProfilerEntry(
            class_name="KernelProfiler", shows="energy by kernel of the GPU", is_default=True
        ),
        "lines": ProfilerEntry(
            class_name="LineProfiler", shows="energy by line of source", is_default=True
        ),
        "host": ProfilerEntry(
            class_name="HostProfiler", shows="time and energy by Python function, with cProfile"
        ),
        "phases": ProfilerEntry(
            class_name="StepPhases",
            shows="energy by phase of the step: forward, backward, optimizer",
        ),
    }
)


def create(name: str, **settings: Any) -> Any:
    """Import the class of a profiler, and return a new object of it.

    Args:
        name: name of the profiler, a ``ProfilerName``.
        settings: keyword arguments of the class.

    Raises:
        ValueError: if there is no profiler of this name.
    """
    if name not in PROFILERS:
        known = ", ".join(repr(one) for one in PROFILERS)
        raise ValueError(
            f"unknown profiler {name!r}; profilers= takes the names {known}, and objects such as "
            "KernelProfiler()"
        )
    return resolve_name(f"energy_callbacks.profiling:{PROFILERS[name].class_name}")(**settings)
