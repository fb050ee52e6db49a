"""Summarises all windows of an attempt as the record for the report."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from energy_callbacks.accounting.attempt import ActiveAttempt
from energy_callbacks.core.records import Energy, Quantity
from energy_callbacks.profiling.kernels.bound import roofline, verdict
from energy_callbacks.profiling.kernels.capture import Capture, told
from energy_callbacks.profiling.kernels.classes import IDLE
from energy_callbacks.profiling.kernels.joules import KernelEnergySplit, split
from energy_callbacks.profiling.kernels.peaks import Peak, peak_of
from energy_callbacks.profiling.kernels.schedule import Schedule, Stretch
from energy_callbacks.profiling.kernels.tally import PARTS, KernelTally
from energy_callbacks.profiling.kernels.traces import stacks
from energy_callbacks.report.model.profile_kernels import KernelRow

# Of kernels, by name; the rest are a row together.
_MOST_KERNELS: Final = 40
_LONGEST_NAME: Final = 200
_ACTIVITY: Final[tuple[Quantity, ...]] = (
    "sm_active",
    "sm_occupancy",
    "tensor_active",
    "dram_active",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Everything that one attempt has gathered.

    Attributes:
        framework: whose profiler recorded; ``None`` if no window opened.
        captures: windows that were kept.
        schedule: steps, and what windows cost.
        flops_per_step: if the user knows.
        notes: what went amiss.
    """

    framework: str | None
    captures: Sequence[Capture]
    schedule: Schedule
    flops_per_step: float | None
    notes: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Undisturbed:
    """Training between windows.

    Attributes:
        step_s: mean; ``None`` if there was none.
        energy: of a step.
        scope: whose energy.
    """

    step_s: float | None
    energy: Energy
    scope: str


def record(found: Findings, meter: ActiveAttempt, folder: Path) -> dict[str, Any]:
    """The record, and the files beside it.

    Args:
        found: of the attempt.
        meter: while it still measures.
        folder: of the files.
    """
    whole, files, notes = KernelTally(), [], list(found.notes)
    for capture in found.captures:
        window, path = told(capture)
        files.append(str(path.relative_to(folder.parent)))
        if window is not None:
            whole.add(window)
    undisturbed = _undisturbed(found.schedule, meter)
    steps = found.schedule.steps
    known = {
        "framework": found.framework,
        "windows": len(found.captures),
        "steps": steps,
        "step_s": undisturbed.step_s,
        "overhead": found.schedule.overhead,
        "scope": undisturbed.scope,
        "j_per_step": undisturbed.energy.energy_j,
        "j_per_step_error": _error_j(undisturbed.energy),
        "traces": files,
    }
    if not whole.steps or not whole.time_s:
        return {**_NOTHING, **known, "notes": [*notes, _why_nothing(found)]}
    # Of operators of the host the profiler makes each one longer, not what lies between them alone.
    step_s = undisturbed.step_s if whole.has_device else None
    parts = split(whole, step_s, undisturbed.energy.energy_j)
    return {
        **_NOTHING,
        **known,
        **_of_tally(whole, parts),
        **_of_limits(found, meter, whole, parts, undisturbed.step_s),
        **stacks.write(parts.rows, steps, folder),
        "notes": notes,
    }


def _of_tally(whole: KernelTally, parts: KernelEnergySplit) -> dict[str, Any]:
    busy_s = whole.busy_s
    return {
        "has_device": whole.has_device,
        "measured_steps": whole.steps,
        "kernels_per_step": sum(whole.calls.values()) / whole.steps,
        "busy_share": parts.busy_share if whole.frame_s else None,
        "classes": [asdict(row) for row in _by_class(parts.rows)],
        "kernels": [asdict(row) for row in _longest(parts.rows)],
        "parts": {part: whole.parts_s.get(part, 0.0) / busy_s for part in PARTS}
        if whole.parts_s
        else None,
        "idle_s": parts.idle_s,
        "cudnn_share": whole.cudnn_s / busy_s,
        "copy_s": whole.copy_s / whole.steps if whole.frame_s else None,
        "copy_overlap": whole.hidden_copy_s / whole.copy_s if whole.copy_s else None,
    }


def _of_limits(
    found: Findings,
    meter: ActiveAttempt,
    whole: KernelTally,
    parts: KernelEnergySplit,
    step_s: float | None,
) -> dict[str, Any]:
    """The limit of the training, with the figures behind it."""
    gpus = [device for device in meter.devices if device.kind == "gpu"]
    activity = _activity(meter, [gpu.key for gpu in gpus], found.schedule.stretches)
    peak = peak_of(gpus[0].name) if gpus else None
    roof = roofline(found.flops_per_step, step_s, activity, peak, whole.devices)
    limit = verdict(parts, has_device=whole.has_device, activity=activity, roof=roof)
    return {
        "activity": activity or None,
        "roofline": None if roof is None else asdict(roof),
        "bound": limit.bound,
        "sentence": limit.sentence,
        "evidence": [*limit.evidence, *_traffic(activity, peak)],
    }


def _traffic(activity: Mapping[str, float], peak: Peak | None) -> Iterator[str]:
    """The used memory bandwidth beside its peak."""
    if peak is not None and "dram_active" in activity:
        most = peak.bytes_per_s / 1e12
        moved = activity["dram_active"] * most
        yield f"the memory moved {moved:.3g} TB/s of {most:.4g}, all the time ({peak.source})"


# What is not known of a training of which no window was recorded.
_NOTHING: Final[Mapping[str, Any]] = {
    "has_device": False,
    "measured_steps": 0,
    "kernels_per_step": None,
    "busy_share": None,
    "classes": [],
    "kernels": [],
    "parts": None,
    "idle_s": None,
    "cudnn_share": None,
    "copy_s": None,
    "copy_overlap": None,
    "activity": None,
    "roofline": None,
    "bound": "unknown",
    "sentence": "Nothing was recorded.",
    "evidence": [],
    "folded": None,
    "speedscope": None,
}


def _why_nothing(found: Findings) -> str:
    if found.captures and found.framework != "torch":
        return (
            "the trace is there and the table is not: it is made where the package xprof is "
            "installed and an accelerator worked"
        )
    if found.captures:
        return "the windows hold no whole step with work of a device or an operator in it"
    return (
        f"no window was recorded in {found.schedule.steps} steps: the training ended, or changed "
        "its phase, too soon; give KernelProfiler a smaller windows_after"
    )


def _undisturbed(schedule: Schedule, meter: ActiveAttempt) -> _Undisturbed:
    stretches = schedule.stretches
    scope = "gpu" if any(device.scope == "gpu" for device in meter.devices) else "host"
    steps = sum(one.steps for one in stretches)
    if not steps:
        return _Undisturbed(step_s=None, energy=Energy(energy_j=None), scope=scope)
    return _Undisturbed(
        step_s=sum(one.duration_s for one in stretches) / steps,
        energy=_a_step(meter, stretches, scope),
        scope=scope,
    )


def _a_step(meter: ActiveAttempt, stretches: Sequence[Stretch], scope: str) -> Energy:
    """Mean energy of the steps that were seen."""
    meter.wait_until_seen(max(one.end_s for one in stretches), _PATIENCE_S)
    seen = [
        (one.steps, meter.energy(one.start_s, one.end_s, scope))
        for one in stretches
        if one.duration_s > 0.0
    ]
    known = [(steps, energy) for steps, energy in seen if energy.coverage >= _SEEN]
    steps = sum(count * energy.coverage for count, energy in known)
    joules = [energy.energy_j for _, energy in known if energy.energy_j is not None]
    if not steps or len(joules) < len(known):
        return Energy(energy_j=None)
    found = Energy(
        energy_j=sum(joules) / steps,
        stderr_j=float(np.hypot.reduce([energy.stderr_j for _, energy in known])) / steps,
        systematic_j=sum(energy.systematic_j for _, energy in known) / steps,
        coverage=1.0,
    )
    return found if found.is_resolved else Energy(energy_j=None)


_PATIENCE_S: Final = 6.0
_SEEN: Final = 0.9


def _error_j(energy: Energy) -> float | None:
    return None if energy.energy_j is None else energy.error_j


def _activity(
    meter: ActiveAttempt, keys: Sequence[str], stretches: Sequence[Stretch]
) -> dict[str, float]:
    """Means of the cards' own counters while training, as far back as they are kept."""
    found: dict[str, float] = {}
    for quantity in _ACTIVITY:
        values = [
            value
            for key in keys
            for one in stretches
            for value in meter.timeline.values(key, quantity, one.start_s, one.end_s)
        ]
        if values:
            found[quantity] = float(np.mean(values))
    return found


def _by_class(rows: Sequence[KernelRow]) -> list[KernelRow]:
    """A row for each class, most time first, idle last."""
    classes: dict[str, list[KernelRow]] = {}
    for row in rows:
        classes.setdefault(row.class_name, []).append(row)
    summed = [_together(name, name, of) for name, of in classes.items()]
    return sorted(summed, key=lambda row: (row.class_name == IDLE, -row.time_s))


def _longest(rows: Sequence[KernelRow]) -> Iterator[KernelRow]:
    """The kernels with most time, and all others in one row; idle is no kernel."""
    kernels = [row for row in rows if row.class_name != IDLE]
    for row in kernels[:_MOST_KERNELS]:
        yield KernelRow(**{**asdict(row), "name": row.name[:_LONGEST_NAME]})
    if rest := kernels[_MOST_KERNELS:]:
        yield _together(f"{len(rest)} others", "other", rest)


def _together(name: str, class_name: str, rows: Sequence[KernelRow]) -> KernelRow:
    joules = [row.energy_j for row in rows if row.energy_j is not None]
    return KernelRow(
        name=name,
        class_name=class_name,
        calls=sum(row.calls for row in rows),
        time_s=sum(row.time_s for row in rows),
        share=sum(row.share for row in rows),
        energy_j=sum(joules) if len(joules) == len(rows) else None,
    )
