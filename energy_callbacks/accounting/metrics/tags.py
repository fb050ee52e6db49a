"""Defines the tags: names and units of the figures logged with the loss in all frameworks."""

from collections.abc import Mapping
from typing import Final

TAGS: Final = {
    "power/gpu_w": "mean power of the GPUs that this run uses, W",
    "power/host_w": "mean power of CPU and RAM, W",
    "energy/gpu_wh": "energy of the GPUs, over all attempts of the run, Wh",
    "energy/host_wh": "energy of CPU and RAM, over all attempts of the run, Wh",
    "energy/total_wh": "energy of the whole machine if measured, else of GPUs and host; Wh",
    "energy/measured_fraction": "share of the total that a sensor measured; the rest is estimated",
    "efficiency/gpu_j_per_step": "GPU energy of training per optimizer step, J",
    "efficiency/gpu_j_per_sample": "GPU energy of training per sample, J",
    "efficiency/gpu_j_per_token": "GPU energy of training per token, J",
    "efficiency/total_j_per_sample": "total energy of training per sample, J",
    "emissions/total_g": "emissions over all attempts of the run, gCO2e; absent without a location",
    "memory/device_used_gib": "memory in use on the GPUs, by all processes, GiB",
    "memory/peak_allocated_gib": "highest memory in the framework's device allocator, GiB",
    "memory/host_rss_gib": "resident memory of process and workers, shared pages in each, GiB",
    "throughput/samples_per_s": "samples per second of training",
    "throughput/tokens_per_s": "tokens per second of training",
    "throughput/data_wait_fraction": "share of the training time spent waiting for data",
    "gpu/utilisation": "share of time in which a kernel ran, mean over the GPUs",
    "gpu/sm_active": "share of time with work, mean over all multiprocessors; Hopper and newer",
    "gpu/sm_occupancy": "resident warps, as a share of the maximum number; Hopper and newer",
    "gpu/tensor_active": "share of time in which the tensor cores were busy; Hopper and newer",
    "gpu/dram_active": "memory bandwidth, as a share of the maximum; Hopper and newer",
    "gpu/memory_utilisation": "share of time in which memory was in use, mean over the GPUs",
    "gpu/temperature_c": "temperature of the hottest GPU, degree Celsius",
    "gpu/sm_clock_mhz": "clock rate of the multiprocessors, mean over the GPUs, MHz",
    "gpu/memory_clock_mhz": "clock rate of the memory, mean over the GPUs, MHz",
    "gpu/power_limit_w": "power limit, mean over the GPUs, W",
    "gpu/throttled_fraction": "share of time with reduced clocks, of the most throttled GPU",
}
"""Meaning of each tag; a tag is the name of a figure."""

INTERVALS: Final = tuple(tag for tag in TAGS if tag.startswith(("efficiency/", "emissions/")))
"""Tags that are also logged with the suffixes ``_lo`` and ``_hi``: the ends of an interval."""


def expected_tags(*, gpu: bool, tokens: bool, waits: bool) -> tuple[str, ...]:
    """Return all tags that a training may log, for loggers that need all tags at the start.

    Args:
        gpu: whether the training uses GPUs.
        tokens: whether tokens are counted.
        waits: whether waiting for data is measured.
    """
    missing = [] if gpu else ["gpu", "memory/device_used_gib", "memory/peak_allocated_gib"]
    missing += ([] if tokens else ["token"]) + ([] if waits else ["data_wait"])
    tags = (tag for tag in TAGS if not any(part in tag for part in missing))
    return tuple(
        name
        for tag in tags
        for name in ((tag, f"{tag}_lo", f"{tag}_hi") if tag in INTERVALS else (tag,))
    )


OWN_TAGS: Final = frozenset(expected_tags(gpu=True, tokens=True, waits=True))
"""All tags that this package logs, to distinguish its figures from metrics of the user."""


def own_tags(prefix: str) -> frozenset[str]:
    """Return ``OWN_TAGS`` with the user's setting ``tag_prefix``."""
    return frozenset(prefix + tag for tag in OWN_TAGS) if prefix else OWN_TAGS


def with_prefix(prefix: str, values: Mapping[str, float]) -> dict[str, float]:
    """Return figures under the names that the user sees: with the setting ``tag_prefix``."""
    return {prefix + tag: value for tag, value in values.items()}


def without_prefix(prefix: str, values: Mapping[str, float]) -> dict[str, float]:
    """Return the figures of ``with_prefix`` under their own names."""
    return {tag.removeprefix(prefix): value for tag, value in values.items()}
