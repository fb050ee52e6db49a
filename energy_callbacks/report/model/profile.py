"""The profiles of a run, a field for each kind."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from energy_callbacks.report.model import (
    profile_host,
    profile_kernels,
    profile_lines,
    profile_phases,
)
from energy_callbacks.report.model.profile_host import HostProfile
from energy_callbacks.report.model.profile_kernels import KernelProfile
from energy_callbacks.report.model.profile_lines import LineProfile
from energy_callbacks.report.model.profile_phases import StepPhases


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What profilers have found; ``None`` if there was none of that kind.

    Attributes:
        step_phases: energy over the phases of the step.
        kernels: who had the device's time.
        lines: joules of the lines of the user's source.
        host: calls and memory of the process.
    """

    step_phases: StepPhases | None = None
    kernels: KernelProfile | None = None
    lines: LineProfile | None = None
    host: HostProfile | None = None


_READERS: Final[Mapping[str, Callable[[Mapping[str, Any]], Any]]] = {
    "step_phases": profile_phases.from_record,
    "kernels": profile_kernels.from_record,
    "lines": profile_lines.from_record,
    "host": profile_host.from_record,
}


def from_records(records: Mapping[str, Mapping[str, Any]]) -> Profile | None:
    """The profile in a journal, by kind; a kind of a later version is left out."""
    found: dict[str, Any] = {
        kind: read(records[kind]) for kind, read in _READERS.items() if kind in records
    }
    return Profile(**found) if found else None
