"""Maps names on the command line to profilers, whose modules are imported when first needed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pkgutil import resolve_name
from types import MappingProxyType
from typing import Any, Final

from energy_callbacks.accounting.profilers import Profiler


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfilerEntry:
    """A profiler that can be chosen by name.

    Attributes:
        path: module and class as ``module:class``, relative to ``energy_callbacks.profiling``.
        shows: what the profiler shows; part of the command's help.
        settings: keyword arguments with which the class is called.
        is_default: whether the profiler is used if the user chooses none.
    """

    path: str
    shows: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    is_default: bool = False

    def create(self) -> Profiler:
        """Import the class, and return a new object of it."""
        kind = resolve_name(f"energy_callbacks.profiling.{self.path}")
        profiler: Profiler = kind(**self.settings)
        return profiler


PROFILERS: Final[Mapping[str, ProfilerEntry]] = MappingProxyType(
    {
        "kernels": ProfilerEntry(
            path="kernels:KernelProfiler", shows="kernels of the GPU", is_default=True
        ),
        "lines": ProfilerEntry(
            path="lines:LineProfiler", shows="lines of the program", is_default=True
        ),
        "host": ProfilerEntry(
            path="host:HostProfiler", shows="Python calls, by cProfile", settings={"whole": True}
        ),
        "phases": ProfilerEntry(path="phases:StepPhases", shows="phases of the step"),
    }
)
