"""Advice from a kernel profile; savings are attributed in the same way as the kernels' joules."""

from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

from energy_callbacks.core.formatting import percent
from energy_callbacks.report.model.profile_kernels import KernelProfile
from energy_callbacks.report.model.recommendation import MATTERS, Advice, Code
from energy_callbacks.report.model.schema import Profile

# Classes of kernels that read and write what a fused kernel keeps in registers.
_FUSIBLE: Final = ("elementwise and reduction", "normalisation")


class _Candidate(NamedTuple):
    """Advice that is given if its share of the time matters; ``None`` if it is not known."""

    code: Code
    share: float | None
    message: str
    fix: str


def kernel_advice(profile: Profile | None, *, given: Collection[Code] = ()) -> Iterator[Advice]:
    """Yields what a run should change, for shares of the time that matter.

    Args:
        profile: profile of the run.
        given: codes of earlier advice; waiting for data is not reported twice.
    """
    kernels = None if profile is None else profile.kernels
    if kernels is None or not kernels.classes:
        return
    candidates = [] if "data_wait" in given else [_input(kernels)]
    if kernels.has_device:
        candidates += [_launch(kernels), _memory(kernels), _copies(kernels)]
    for one in candidates:
        if one.share is not None and one.share >= MATTERS:
            saves_j = None if kernels.energy_j is None else one.share * kernels.energy_j
            yield Advice(code=one.code, message=one.message, fix=one.fix, saves_j=saves_j)


def _input(kernels: KernelProfile) -> _Candidate:
    share = kernels.idle_share("input")
    return _Candidate(
        "input_bound",
        share,
        f"The device was idle for {percent(share)} of a step while the next batch was fetched.",
        "more num_workers of the loader, prefetch_factor, persistent_workers, and pin_memory "
        "with non_blocking copies; or less to decode for each sample",
    )


def _launch(kernels: KernelProfile) -> _Candidate:
    share = kernels.idle_share("launch")
    return _Candidate(
        "launch_bound",
        share,
        f"The device was idle for {percent(share)} of a step while the host was still launching "
        f"its {kernels.kernels_per_step or 0.0:.0f} kernels.",
        "a larger batch, torch.compile(mode='reduce-overhead') or CUDA graphs, and foreach or "
        "fused optimizers",
    )


def _memory(kernels: KernelProfile) -> _Candidate:
    share = sum(map(kernels.share_of, _FUSIBLE)) if kernels.bound == "memory" else None
    return _Candidate(
        "memory_bound",
        share,
        f"{kernels.sentence} Elementwise and normalising kernels, which could be fused with "
        f"others, had {percent(share)} of the time.",
        "torch.compile, which fuses them; bf16 or fp16, which halves the bytes; channels_last "
        "for convolutions; fused attention and optimizers",
    )


def _copies(kernels: KernelProfile) -> _Candidate:
    share = None
    if kernels.copy_s and kernels.copy_overlap is not None and kernels.device_s:
        share = kernels.copy_s * (1.0 - kernels.copy_overlap) / kernels.device_s
    return _Candidate(
        "copies",
        share,
        f"Copies between host and device took {percent(share)} of a step with no kernel beside "
        "them.",
        "pin_memory=True in the loader and .to(device, non_blocking=True); copy the next batch "
        "on a stream of its own while this one is computed",
    )
