"""What limits a training: its input, kernel launches, memory, or arithmetic.

Idle time comes first: a device that waits is not held back by itself. Of a device that works,
its own counters (GPM: how much of the memory's bandwidth is used while kernels run); with the
user's FLOPs a roofline; without either only the kinds of kernels, and that is said.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from energy_callbacks.profiling.kernels.classes import DENSE, IDLE, STREAMING
from energy_callbacks.profiling.kernels.joules import KernelEnergySplit
from energy_callbacks.profiling.kernels.peaks import Peak
from energy_callbacks.report.model.profile_kernels import KernelRoofline

Bound = Literal["input", "launch", "memory", "compute", "unknown"]
# Below this share of the time idleness is not what holds a training back.
_IDLE_MATTERS: Final = 0.2
# While kernels run: from here on memory is what they wait for, or the tensor cores are at work.
# A kernel that streams reaches 0.8 to 0.9 of a data sheet's bandwidth; a step is never all of one.
_BANDWIDTH_USED: Final = 0.5
_TENSOR_USED: Final = 0.3
# If most kernels stream, less is enough: reductions do not reach the data sheet's.
_BANDWIDTH_FELT: Final = 0.3
_SM_USED: Final = 0.8
_MOST_KERNELS: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundVerdict:
    """The limit of the training, with its evidence."""

    bound: Bound
    sentence: str
    evidence: tuple[str, ...]


def roofline(
    flops_per_step: float | None,
    step_s: float | None,
    activity: Mapping[str, float],
    peak: Peak | None,
    devices: int,
) -> KernelRoofline | None:
    """``None`` if FLOPs, traffic or peaks are not known."""
    used = activity.get("dram_active")
    if flops_per_step is None or not step_s or peak is None or not used:
        return None
    flops_per_s = flops_per_step / step_s / devices
    return KernelRoofline(
        flops_per_s=flops_per_s,
        flops_per_byte=flops_per_s / (used * peak.bytes_per_s),
        ridge=peak.flops_per_s / peak.bytes_per_s,
        peak_flops_per_s=peak.flops_per_s,
        source=peak.source,
    )


def verdict(
    found: KernelEnergySplit,
    *,
    has_device: bool,
    activity: Mapping[str, float],
    roof: KernelRoofline | None,
) -> BoundVerdict:
    """Find what limits the training.

    Args:
        found: times of a step.
        has_device: whether an accelerator was seen at work.
        activity: means of the card's own counters, as shares of the time.
        roof: if FLOPs are known.
    """
    idle = _idle_shares(found)
    evidence = [f"the device was at work for {_percent(found.busy_share)} of the time"]
    evidence += [
        f"idle, {_CAUSES[c]}: {_percent(share)}" for c, share in idle.items() if share >= 0.0005
    ]
    used = _used(activity, found.busy_share)
    evidence += [f"{_COUNTERS[name]}, while it worked: {_percent(s)}" for name, s in used.items()]
    waiting = _by_idleness(idle, has_device=has_device)
    if waiting is not None:
        return BoundVerdict(bound=waiting[0], sentence=waiting[1], evidence=tuple(evidence))
    if not has_device:
        sentence = "No accelerator was seen: nothing is known of the limits of this processor."
        return BoundVerdict(bound="unknown", sentence=sentence, evidence=tuple(evidence))
    bound, sentence, why = _by_work(found, used, roof)
    return BoundVerdict(bound=bound, sentence=sentence, evidence=(*evidence, *why))


_CAUSES: Final = {
    "input": "while a batch was fetched",
    "launch": "while the host was launching",
    "host": "while the host did something else",
    "device": "with work queued",
}


def _idle_shares(found: KernelEnergySplit) -> dict[str, float]:
    if found.idle_s is None or not found.device_s:
        return {}
    return {cause: time_s / found.device_s for cause, time_s in found.idle_s.items()}


def _by_idleness(idle: Mapping[str, float], *, has_device: bool) -> tuple[Bound, str] | None:
    waits = {cause: idle.get(cause, 0.0) for cause in ("input", "launch", "host")}
    most = max(waits, key=lambda cause: waits[cause])
    if sum(waits.values()) < _IDLE_MATTERS or waits[most] < _IDLE_MATTERS / 2.0:
        return None
    share = _percent(waits[most])
    if most == "input":
        return "input", f"The device waits for data: {share} of a step passes in fetching batches."
    if not has_device:
        return None
    if most == "launch":
        why = f"it is idle for {share} of a step while the host is still launching kernels."
        return "launch", f"The device waits for launches: {why}"
    why = f"in {share} of a step, neither launches nor fetches data: Python, logging, or checks."
    return "unknown", f"The device waits for the host, which, {why}"


def _used(activity: Mapping[str, float], busy: float) -> dict[str, float]:
    """The card's counters, as shares of the time at work."""
    if busy <= 0.0:
        return {}
    return {name: min(activity[name] / busy, 1.0) for name in _COUNTERS if name in activity}


def _by_work(
    found: KernelEnergySplit, used: Mapping[str, float], roof: KernelRoofline | None
) -> tuple[Bound, str, tuple[str, ...]]:
    if roof is not None:
        told = f"{roof.flops_per_byte:.3g} FLOPs a byte, the ridge is at {roof.ridge:.3g}"
        share = roof.flops_per_s / roof.peak_flops_per_s
        known = (told, f"{_percent(share)} of the peak FLOP/s of bf16 and fp16", roof.source)
        # A roof is a limit only for who comes near it.
        if roof.flops_per_byte >= roof.ridge and share >= _TENSOR_USED:
            sentence = "Arithmetic is the limit: memory would allow more operations."
            return "compute", sentence, known
        if roof.flops_per_byte < roof.ridge and used.get("dram_active", 0.0) >= _BANDWIDTH_USED:
            sentence = "Memory is the limit: a byte that is moved brings too few operations."
            return "memory", sentence, known
        bound, sentence, why = _by_work(found, used, None)
        return bound, sentence, (*known, *why)
    if used.get("dram_active", 0.0) >= _BANDWIDTH_USED:
        return "memory", "Memory is the limit: most of its bandwidth is in use.", ()
    if used.get("tensor_active", 0.0) >= _TENSOR_USED:
        return "compute", "Arithmetic is the limit: tensor cores work, and memory has room.", ()
    return _by_classes(found, used)


_COUNTERS: Final = {
    "dram_active": "memory bandwidth in use",
    "tensor_active": "tensor cores active",
    "sm_active": "multiprocessors active",
    "sm_occupancy": "occupancy of the multiprocessors",
}


def _by_classes(
    found: KernelEnergySplit, used: Mapping[str, float]
) -> tuple[Bound, str, tuple[str, ...]]:
    times = {DENSE: 0.0, STREAMING: 0.0}
    for row in found.rows:
        for kinds in times:
            times[kinds] += row.share * (row.class_name in kinds)
    busy = sum(row.share for row in found.rows if row.class_name != IDLE) or 1.0
    dense, streaming = times[DENSE] / busy, times[STREAMING] / busy
    why = (
        f"of the kernels' time, products, convolutions and attention: {_percent(dense)}",
        f"of the kernels' time, kernels that mostly move bytes: {_percent(streaming)}",
        "by the kinds of kernels: "
        + (
            "no counter is near its limit"
            if "dram_active" in used
            else "no counter of the memory's traffic was read"
        ),
    )
    if streaming >= _MOST_KERNELS and used.get("dram_active", 1.0) >= _BANDWIDTH_FELT:
        return "memory", "Memory is probably the limit: most kernels only move bytes.", why
    # Multiprocessors are active while they wait for memory, too: alone they show nothing.
    if dense >= _MOST_KERNELS and used.get("sm_active", 1.0) >= _SM_USED:
        return "compute", "Arithmetic is probably the limit: most kernels are dense.", why
    return "unknown", "No kind of kernel has most of the time.", why


def _percent(share: float) -> str:
    return f"{100.0 * share:.0f} %" if share >= 0.095 else f"{100.0 * share:.1f} %"
