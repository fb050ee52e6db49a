"""The profilers by their command-line names; each is imported when requested."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final

from energy_callbacks.accounting.profilers import Profiler


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfilerEntry:
    """A profiler: ``energy_callbacks.profiling.<folder>.<kind>(**settings)``.

    Attributes:
        shows: what, in words for people.
        is_default: whether it is on by default.
    """

    folder: str
    kind: str
    shows: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    is_default: bool = False


MEMBERS: Final[Mapping[str, ProfilerEntry]] = MappingProxyType(
    {
        "kernels": ProfilerEntry(
            folder="kernels", kind="KernelProfiler", shows="kernels of the GPU", is_default=True
        ),
        "lines": ProfilerEntry(
            folder="lines", kind="LineProfiler", shows="lines of the program", is_default=True
        ),
        "host": ProfilerEntry(
            folder="host",
            kind="HostProfiler",
            shows="Python calls, by cProfile",
            settings={"whole": True},
        ),
        "phases": ProfilerEntry(folder="phases", kind="StepPhases", shows="phases of the step"),
    }
)


def create(names: Sequence[str]) -> Iterator[Profiler]:
    """The profilers with these names."""
    for name in names:
        member = MEMBERS[name]
        module = import_module(f"energy_callbacks.profiling.{member.folder}")
        profiler: Profiler = getattr(module, member.kind)(**member.settings)
        yield profiler
