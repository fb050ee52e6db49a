"""Computes the kernel profile for the report from all windows of an attempt."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Final

import numpy as np

from energy_callbacks.accounting.metrics.energy_sums import UNKNOWN, total
from energy_callbacks.core.records import Energy, Peak, Quantity
from energy_callbacks.profiling.kernels import stacks
from energy_callbacks.profiling.kernels.bound import BoundVerdict, roofline, traffic, verdict
from energy_callbacks.profiling.kernels.capture import KernelRun
from energy_callbacks.profiling.kernels.classes import IDLE
from energy_callbacks.profiling.kernels.tally import PARTS, KernelEnergySplit, KernelTally, split
from energy_callbacks.report.model.profile_kernels import KernelProfile, KernelRow

# Maximum number of kernels with a row of their own; the others share one row.
_MOST_KERNELS: Final = 40
# Maximum number of characters of a kernel's name.
_LONGEST_NAME: Final = 200
_ACTIVITY: Final[tuple[Quantity, ...]] = (
    "sm_active", "sm_occupancy", "tensor_active", "dram_active", "memory_utilisation"
)  # fmt: skip
# Maximum time to wait for sensor readings.
_PATIENCE_S: Final = 6.0
# The energy of a stretch (consecutive steps outside of windows) is used only if readings cover at
# least this share of the stretch.
_COVERED: Final = 0.9
_NO_LIMITS: Final = BoundVerdict("unknown", "Nothing was recorded.")._asdict() | {
    "activity": None,
    "roofline": None,
}


def record(run: KernelRun) -> dict[str, Any]:
    """Write the files of the profile and return the profile for the journal, as a dict.

    The attempt must still be running, because the function waits for sensor readings.
    """
    tally, traces, unread = _evaluated(run)
    run.notes.extend(unread)
    scope = "gpu" if any(device.scope == "gpu" for device in run.meter.devices) else "host"
    energy, step_s = _step_energy(run, scope), run.schedule.step_s
    parts, limits = None, _NO_LIMITS
    if tally.steps and tally.time_s:
        # Without an accelerator, the profiler slows down the operators themselves. Their shares of
        # a step are then computed with the duration of steps in windows.
        parts = split(tally, step_s if tally.has_device else None, energy.energy_j)
        limits = _limits(run, tally, parts)
    elif not unread:
        run.notes.append(_why_nothing(run))
    files = stacks.write(parts.rows if parts else (), run.schedule.steps, run.folder)
    profile = KernelProfile(
        framework=run.framework,
        windows=len(run.captures),
        steps=run.schedule.steps,
        step_s=step_s,
        overhead=run.schedule.overhead,
        scope=scope,
        j_per_step=energy.energy_j,
        j_per_step_error=None if energy.energy_j is None else energy.error_j,
        traces=tuple(traces),
        notes=tuple(run.notes),
        **limits,
        **_figures(tally, parts),
        folded=files.get("folded"),
        speedscope=files.get("speedscope"),
    )
    return asdict(profile)


def _evaluated(run: KernelRun) -> tuple[KernelTally, list[str], list[str]]:
    """Return the sums over all windows, the traces' paths, and errors of traces.

    The paths are relative to the run folder.
    """
    tally, traces, unread, meter = KernelTally(), [], [], run.meter
    for number, capture in enumerate(run.captures, start=1):
        if capture.tracks is None:
            meter.wait_until_seen(min(capture.end_s, meter.now_s()), _PATIENCE_S)
            capture.keep_readings(meter, meter.now_s(), at_once=True)
        try:
            window, path = capture.evaluate(meter.rank)
        except ValueError as error:
            # PyTorch 2.13 writes invalid JSON if the name of a record_function has a quote.
            window, path = None, capture.path
            unread.append(f"the trace of window {number} could not be read: {error}")
        traces.append(str(path.relative_to(run.folder.parent)))
        if window is not None:
            tally.add(window)
    return tally, traces, unread


def _figures(tally: KernelTally, parts: KernelEnergySplit | None) -> dict[str, Any]:
    """Return the fields of ``KernelProfile`` that come from the sums of the windows."""
    if parts is None:
        tally, parts = KernelTally(), KernelEnergySplit(rows=(), device_s=0.0, idle_s=None)
    busy_s, parts_s = tally.busy_s, tally.parts_s
    return {
        "has_device": tally.has_device,
        "measured_steps": tally.steps,
        "kernels_per_step": sum(tally.calls.values()) / tally.steps if tally.steps else None,
        "busy_share": parts.busy_share if tally.frame_s else None,
        "classes": _by_class(parts.rows),
        "kernels": tuple(_longest(parts.rows)),
        "parts": {p: parts_s.get(p, 0.0) / busy_s for p in PARTS} if parts_s and busy_s else None,
        "idle_s": parts.idle_s,
        "cudnn_share": tally.cudnn_s / busy_s if busy_s else None,
        "copy_s": tally.copy_s / tally.steps if tally.frame_s else None,
        "copy_overlap": tally.hidden_copy_s / tally.copy_s if tally.copy_s else None,
    }


def _limits(run: KernelRun, tally: KernelTally, parts: KernelEnergySplit) -> dict[str, Any]:
    """Return the fields of ``KernelProfile`` about the limit of the training's speed."""
    gpus = [device for device in run.meter.devices if device.kind == "gpu"]
    activity = _activity(run, [gpu.key for gpu in gpus])
    peak = gpus[0].peak if gpus else None
    step_s = run.schedule.step_s
    roof = roofline(run.flops_per_step, step_s, activity, peak, tally.devices)
    limit = verdict(parts, has_device=tally.has_device, activity=activity, roof=roof)
    limit = limit._replace(evidence=(*limit.evidence, *_traffic(activity, peak)))
    return limit._asdict() | {"activity": activity or None, "roofline": roof}


def _traffic(activity: Mapping[str, float], peak: Peak | None) -> Iterator[str]:
    """Yield a sentence with the mean and the peak memory bandwidth, if both are known."""
    used = traffic(activity)
    if peak is not None and used is not None:
        most = peak.bytes_per_s / 1e12
        at_most = "" if "dram_active" in activity else "at most "
        yield (
            f"memory traffic was {at_most}{used * most:.3g} TB/s of {most:.4g}, averaged over all "
            f"the time ({peak.source})"
        )


def _why_nothing(run: KernelRun) -> str:
    if run.captures and run.framework != "torch":
        return (
            "the trace was saved, but not the table of kernels: this needs the package xprof "
            "and a run on an accelerator"
        )
    if run.captures:
        return "the windows contain no complete step with work of a device or an operator"
    return (
        f"no window was recorded in {run.schedule.steps} steps: the training ended, or changed "
        "its phase, too soon; give KernelProfiler a smaller windows_after"
    )


def _step_energy(run: KernelRun, scope: str) -> Energy:
    """Return a step's mean energy outside of windows; ``UNKNOWN`` if unknown or not resolved."""
    meter, stretches = run.meter, run.schedule.stretches
    if not stretches:
        return UNKNOWN
    meter.wait_until_seen(max(one.end_s for one in stretches), _PATIENCE_S)
    measured = [
        (one.steps, meter.energy(one.start_s, one.end_s, scope))
        for one in stretches
        if one.duration_s > 0.0
    ]
    known = [(steps, energy) for steps, energy in measured if energy.coverage >= _COVERED]
    steps = sum(count * energy.coverage for count, energy in known)
    whole = total(energy for _, energy in known)
    if whole.energy_j is None or any(energy.energy_j is None for _, energy in known):
        return UNKNOWN
    mean = Energy(
        energy_j=whole.energy_j / steps,
        stderr_j=whole.stderr_j / steps,
        edge_j=whole.edge_j / steps,
        systematic_j=whole.systematic_j / steps,
        coverage=1.0,
    )
    return mean if mean.is_resolved else UNKNOWN


def _activity(run: KernelRun, gpus: Sequence[str]) -> dict[str, float]:
    """Return the mean of each GPU counter over all GPUs and all stretches, as a share (0 to 1).

    Only readings that the timeline still has are included. Counters without readings are left out.
    """
    means: dict[str, float] = {}
    for quantity in _ACTIVITY:
        values = [
            value
            for key in gpus
            for one in run.schedule.stretches
            for value in run.meter.timeline.readings(key, quantity, one.start_s, one.end_s)[1]
        ]
        if values:
            means[quantity] = float(np.mean(values))
    if "dram_active" in means:  # which says more
        means.pop("memory_utilisation", None)
    return means


def _by_class(rows: Sequence[KernelRow]) -> tuple[KernelRow, ...]:
    """Return one row per class of kernels, by decreasing time; the row of idle time is the last."""
    classes = defaultdict[str, list[KernelRow]](list)
    for row in rows:
        classes[row.class_name].append(row)
    sums = [_sum(name, name, own) for name, own in classes.items()]
    return tuple(sorted(sums, key=lambda row: (row.class_name == IDLE, -row.time_s)))


def _longest(rows: Sequence[KernelRow]) -> Iterator[KernelRow]:
    """Yield the rows of the 40 kernels with the most time, and one row for all other kernels."""
    kernels = [row for row in rows if row.class_name != IDLE]
    for row in kernels[:_MOST_KERNELS]:
        yield replace(row, name=row.name[:_LONGEST_NAME])
    if rest := kernels[_MOST_KERNELS:]:
        yield _sum(f"{len(rest)} others", "other", rest)


def _sum(name: str, class_name: str, rows: Sequence[KernelRow]) -> KernelRow:
    joules = [row.energy_j for row in rows if row.energy_j is not None]
    return KernelRow(
        name=name,
        class_name=class_name,
        calls=sum(row.calls for row in rows),
        time_s=sum(row.time_s for row in rows),
        share=sum(row.share for row in rows),
        energy_j=sum(joules) if len(joules) == len(rows) else None,
    )
