"""Advice from a kernel profile; its savings are attributed like the kernels' joules."""

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Final

from energy_callbacks.core import formatting
from energy_callbacks.report.model.recommendation import MATTERS, Advice, Code

if TYPE_CHECKING:
    from energy_callbacks.report.model.profile_kernels import KernelProfile
    from energy_callbacks.report.model.schema import Profile

# Kernels that read and write what a fused one would keep: fusion spares a part of these.
_FUSIBLE: Final = ("elementwise and reduction", "normalisation")


def kernel_advice(profile: "Profile | None", *, told: Collection[Code] = ()) -> Iterator[Advice]:
    """What a run should change.

    Args:
        profile: of the run.
        told: codes of advice given already; waiting for data is not reported twice.
    """
    if profile is None or profile.kernels is None or not profile.kernels.classes:
        return
    found = profile.kernels
    if "data_wait" not in told:
        yield from _input(found)
    if found.has_device:
        yield from _launch(found)
        yield from _memory(found)
        yield from _copies(found)


def _input(found: "KernelProfile") -> Iterator[Advice]:
    share = found.idle_share("input")
    if share is not None and share >= MATTERS:
        yield _advice(
            found,
            "input_bound",
            share,
            f"The device was idle for {formatting.percent(share)} of a step while the next batch "
            "was "
            "fetched.",
            "more num_workers of the loader, prefetch_factor, persistent_workers, and pin_memory "
            "with non_blocking copies; or less to decode for each sample",
        )


def _launch(found: "KernelProfile") -> Iterator[Advice]:
    share = found.idle_share("launch")
    if share is not None and share >= MATTERS:
        yield _advice(
            found,
            "launch_bound",
            share,
            f"The device was idle for {formatting.percent(share)} of a step while the host was "
            "still "
            f"launching its {found.kernels_per_step or 0.0:.0f} kernels.",
            "a larger batch, torch.compile(mode='reduce-overhead') or CUDA graphs, and foreach or "
            "fused optimizers",
        )


def _memory(found: "KernelProfile") -> Iterator[Advice]:
    share = sum(map(found.share_of, _FUSIBLE))
    if found.bound == "memory" and share >= MATTERS:
        yield _advice(
            found,
            "memory_bound",
            share,
            f"{found.sentence} Elementwise and normalising kernels, which could be fused with "
            f"others, had {formatting.percent(share)} of the time.",
            "torch.compile, which fuses them; bf16 or fp16, which halves the bytes; channels_last "
            "for convolutions; fused attention and optimizers",
        )


def _copies(found: "KernelProfile") -> Iterator[Advice]:
    if not found.copy_s or found.copy_overlap is None or not found.device_s:
        return
    share = found.copy_s * (1.0 - found.copy_overlap) / found.device_s
    if share >= MATTERS:
        yield _advice(
            found,
            "copies",
            share,
            f"Copies between host and device took {formatting.percent(share)} of a step with no "
            "kernel "
            "beside them.",
            "pin_memory=True in the loader and .to(device, non_blocking=True); copy the next batch "
            "on a stream of its own while this one is computed",
        )


def _advice(found: "KernelProfile", code: Code, share: float, message: str, fix: str) -> Advice:
    energy_j = found.energy_j
    saves_j = None if energy_j is None else share * energy_j
    return Advice(code=code, message=message, fix=fix, saves_j=saves_j)
