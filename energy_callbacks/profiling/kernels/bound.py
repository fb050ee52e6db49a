"""Determines what limits the speed of a training: input, kernel launches, memory, or arithmetic.

The evidence is used in this order:

1. idle time: a device that is often idle is limited by what it waits for;
2. the roofline, if the user gave the FLOPs of a step;
3. the counters of the GPU (NVML's GPU performance monitoring, GPM), such as the used share of the
   memory bandwidth;
4. the classes of kernels with the most time, which is the weakest evidence.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Final, Literal, NamedTuple

from energy_callbacks.core.records import Peak
from energy_callbacks.profiling.kernels.classes import DENSE, STREAMING
from energy_callbacks.profiling.kernels.tally import KernelEnergySplit
from energy_callbacks.report.model.profile_kernels import KernelRoofline

Bound = Literal["input", "launch", "memory", "compute", "unknown"]
# Waiting for the host (for input, launches or other work of the host) is the limit only if these
# waits together take at least this share of a step, and one of them at least half of this share.
_IDLE_MATTERS: Final = 0.2
# If waiting is not the limit, memory is the limit if at least this share of its bandwidth is used
# while kernels or copies run, unless the roofline shows that arithmetic is the limit. A kernel that
# only moves bytes reaches 0.8 to 0.9 of the data sheet's bandwidth, but a step has other kernels,
# too.
_BANDWIDTH_USED: Final = 0.5
# If neither waiting nor memory is the limit, arithmetic is the limit if tensor cores are active for
# at least this share of the time in which kernels or copies run. The roofline uses the same
# threshold for the share of the peak FLOP/s, averaged over the whole step.
_TENSOR_USED: Final = 0.3
# This threshold replaces ``_BANDWIDTH_USED`` if ``STREAMING`` kernels take most of the time. It is
# lower because reductions do not reach the bandwidth of the data sheet.
_BANDWIDTH_STREAMING: Final = 0.3
# If the limit is determined by classes of kernels, it is arithmetic only if the multiprocessors are
# active for at least this share of the busy time. If the counter ``sm_active`` was not read, the
# share is not checked.
_SM_USED: Final = 0.8
# ``DENSE`` or ``STREAMING`` kernels take "most of the time" if they take at least this share of the
# time of all kernels.
_MOST_KERNELS: Final = 0.5
_CAUSES: Final = {
    "input": "while a batch was fetched",
    "launch": "while the host was launching kernels",
    "host": "while the host did something else",
    "device": "with work queued",
}
_COUNTERS: Final = {
    "dram_active": "memory bandwidth in use",
    "memory_utilisation": "time with memory in use",
    "tensor_active": "tensor cores active",
    "sm_active": "multiprocessors active",
    "sm_occupancy": "occupancy of the multiprocessors",
}


class BoundVerdict(NamedTuple):
    """What limits the speed of a training.

    Attributes:
        bound: name of the limit; ``unknown`` if no limit was found, or if the limit is work of the
            host other than input and launches.
        sentence: the limit as a sentence.
        evidence: sentences with the numbers that support ``sentence``.
    """

    bound: Bound
    sentence: str
    evidence: tuple[str, ...] = ()


def roofline(
    flops_per_step: float | None,
    step_s: float | None,
    activity: Mapping[str, float],
    peak: Peak | None,
    devices: int,
) -> KernelRoofline | None:
    """Return the position of a step in the roofline model; ``None`` if an input is unknown.

    The result is also ``None`` if the duration of a step or the used memory bandwidth is 0.

    Args:
        flops_per_step: FLOPs of a step over all GPUs of this process; ``None`` if unknown.
        step_s: mean duration of a step in seconds; ``None`` if unknown.
        activity: means of the GPUs' counters, as shares from 0 to 1.
        peak: peak performance of one GPU; ``None`` if unknown.
        devices: number of GPUs of this process.

    Raises:
        ValueError: if ``devices`` is less than 1.
    """
    if devices < 1:
        raise ValueError(
            f"devices must be at least 1, got {devices!r}; give the number of GPUs of this process"
        )
    used = traffic(activity)
    if flops_per_step is None or not step_s or peak is None or not peak.flops_per_s or not used:
        return None
    flops_per_s = flops_per_step / step_s / devices
    return KernelRoofline(
        flops_per_s=flops_per_s,
        flops_per_byte=flops_per_s / (used * peak.bytes_per_s),
        ridge=peak.flops_per_s / peak.bytes_per_s,
        peak_flops_per_s=peak.flops_per_s,
        source=peak.source,
        is_lower_bound="dram_active" not in activity,
    )


def traffic(activity: Mapping[str, float]) -> float | None:
    """Return the used share of the memory bandwidth, or an upper bound; ``None`` if unknown.

    Cards before Hopper report only in which share of time memory is used, at any rate.
    """
    return activity.get("dram_active", activity.get("memory_utilisation"))


def verdict(
    split: KernelEnergySplit,
    *,
    has_device: bool,
    activity: Mapping[str, float],
    roof: KernelRoofline | None,
) -> BoundVerdict:
    """Return what limits the speed of the training.

    Args:
        split: time of a step by kernel, and idle time of a step by cause.
        has_device: whether kernels of an accelerator were recorded.
        activity: means of the GPUs' counters, as shares from 0 to 1.
        roof: position of a step in the roofline model; ``None`` if unknown.
    """
    idle = {}
    if split.idle_s is not None and split.device_s:
        idle = {cause: time_s / split.device_s for cause, time_s in split.idle_s.items()}
    busy = split.busy_share
    # The means of counters include idle time. Divided by the busy share, they are means over busy
    # time.
    used = {n: min(activity[n] / busy, 1.0) for n in _COUNTERS if busy > 0.0 and n in activity}
    evidence = [f"the device was busy for {_percent(busy)} of the time"]
    evidence += [
        f"idle, {_CAUSES[c]}: {_percent(share)}" for c, share in idle.items() if share >= 0.0005
    ]
    evidence += [
        f"{_COUNTERS[name]}, while the device was busy: {_percent(s)}" for name, s in used.items()
    ]
    limit = _by_idleness(idle, has_device=has_device) or _by_work(split, used, roof)
    return limit._replace(evidence=(*evidence, *limit.evidence))


def _by_idleness(idle: Mapping[str, float], *, has_device: bool) -> BoundVerdict | None:
    waits = {cause: idle.get(cause, 0.0) for cause in ("input", "launch", "host")}
    most = max(waits, key=lambda cause: waits[cause])
    waits_long = sum(waits.values()) >= _IDLE_MATTERS and waits[most] >= _IDLE_MATTERS / 2.0
    share = _percent(waits[most])
    if waits_long and most == "input":
        sentence = f"The device waits for data: {share} of a step is spent on fetching batches."
        return BoundVerdict("input", sentence)
    if not has_device:
        sentence = "No accelerator was used, so what limits the training is not known."
        return BoundVerdict("unknown", sentence)
    if not waits_long:
        return None
    if most == "launch":
        why = f"it is idle for {share} of a step while the host launches kernels."
        return BoundVerdict("launch", f"The device waits for launches: {why}")
    why = f"in {share} of a step, neither launches nor fetches data: Python, logging, or checks."
    return BoundVerdict("unknown", f"The device waits for the host, which, {why}")


def _by_work(
    split: KernelEnergySplit, used: Mapping[str, float], roof: KernelRoofline | None
) -> BoundVerdict:
    bandwidth = used.get("dram_active", 0.0)  # an upper bound cannot show that memory is the limit
    if roof is not None:
        share = roof.flops_per_s / roof.peak_flops_per_s
        evidence = (
            f"{roof.intensity} FLOPs per byte, the ridge is at {roof.ridge:.3g}",
            f"{_percent(share)} of the peak FLOP/s",
            roof.source,
        )
        # The roofline shows the limit only if a large enough share of the peak is used.
        if roof.flops_per_byte >= roof.ridge and share >= _TENSOR_USED:
            sentence = "Arithmetic is the limit: memory bandwidth would allow more operations."
            return BoundVerdict("compute", sentence, evidence)
        if roof.flops_per_byte < roof.ridge and bandwidth >= _BANDWIDTH_USED:
            sentence = "Memory is the limit: there are too few operations per byte that is moved."
            return BoundVerdict("memory", sentence, evidence)
        limit = _by_work(split, used, None)
        return limit._replace(evidence=(*evidence, *limit.evidence))
    if bandwidth >= _BANDWIDTH_USED:
        return BoundVerdict("memory", "Memory is the limit: most of its bandwidth is in use.")
    if used.get("tensor_active", 0.0) >= _TENSOR_USED:
        sentence = (
            "Arithmetic is the limit: the tensor cores are busy, and memory bandwidth is left."
        )
        return BoundVerdict("compute", sentence)
    return _by_classes(split, used)


def _by_classes(split: KernelEnergySplit, used: Mapping[str, float]) -> BoundVerdict:
    dense, streaming = _share_of(split, DENSE), _share_of(split, STREAMING)
    counters = "no counter is near its limit"
    if "dram_active" not in used:
        counters = "no counter of memory traffic was read"
    evidence = (
        f"matrix products, convolutions and attention: {_percent(dense)} of the kernels' time",
        f"kernels that mostly move bytes: {_percent(streaming)} of the kernels' time",
        f"judged by the kinds of kernels: {counters}",
    )
    moved = traffic(used)
    may_be_memory = moved is None or moved >= _BANDWIDTH_STREAMING
    if streaming >= _MOST_KERNELS and may_be_memory:
        sentence = "Memory is probably the limit: most kernels only move bytes."
        return BoundVerdict("memory", sentence, evidence)
    # A multiprocessor also counts as active while it waits for memory, so its counter alone is not
    # sufficient evidence.
    if dense >= _MOST_KERNELS and used.get("sm_active", 1.0) >= _SM_USED:
        sentence = "Arithmetic is probably the limit: most kernels are dense."
        return BoundVerdict("compute", sentence, evidence)
    return BoundVerdict("unknown", "No kind of kernel takes most of the time.", evidence)


def _share_of(split: KernelEnergySplit, classes: AbstractSet[str]) -> float:
    """Return the share of the kernels' time that belongs to some classes of kernels."""
    share = sum(row.share for row in split.rows if row.class_name in classes)
    return share / (split.busy_share or 1.0)


def _percent(share: float) -> str:
    return f"{100.0 * share:.0f} %" if share >= 0.095 else f"{100.0 * share:.1f} %"
