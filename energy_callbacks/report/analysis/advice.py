"""Derives advice from a report, largest saving of energy first.

Advice is given only for a measured problem that exceeds a threshold. A report without such a
problem gets no advice.
"""

from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

import numpy as np

from energy_callbacks.core.formatting import duration, grouped, one_line, percent
from energy_callbacks.report.analysis.late_stop import late_stop
from energy_callbacks.report.model import figure_format
from energy_callbacks.report.model.batch_sizes import BatchSizeCurve
from energy_callbacks.report.model.profile_kernels import KernelProfile
from energy_callbacks.report.model.recommendation import MATTERS, Advice, Code
from energy_callbacks.report.model.runs import Imbalance
from energy_callbacks.report.model.schema import EnergyReport, Profile

# Minimum idle time, and minimum time of training after the best validation, for which advice is
# given, in seconds. Every script is idle for a few seconds at its start and end.
_LONG_S: Final = 10.0
# Advice on the batch size is given only if the size that a search chose is more than this number
# times the batch size of the run.
_BELOW: Final = 1.2
# What to change if one rank differs from the others. The key is the quantity that differs.
_RANK_FIXES: Final = {
    "data_wait": "give that rank's loader more workers, or data that are as near as the others'",
    "samples_per_step": "give all ranks as many samples, with a distributed sampler",
    "gpu_power": "look for heat, other work, or a slower card on that rank's host",
}
# Classes of kernels that can be fused with others. Without fusion, they read and write intermediate
# values in memory; a fused kernel keeps these values in registers.
_FUSIBLE: Final = ("elementwise and reduction", "normalisation")


def advice(report: EnergyReport) -> tuple[Advice, ...]:
    """Return the advice for a run, largest saving first; savings that are not known come last."""
    found = [
        *_data_wait(report),
        *_idle(report),
        *_batch_size(report),
        *_late_stop(report),
        *_throttling(report),
        *map(_straggler, report.imbalances),
    ]
    found += kernel_advice(report.profile, given={one.code for one in found})
    return tuple(sorted(found, key=lambda one: one.saves_j or 0.0, reverse=True))


def _data_wait(report: EnergyReport) -> Iterator[Advice]:
    work = report.throughput
    waited = work.data_wait and work.data_wait.total
    share = work.data_wait_fraction or 0.0
    if waited and waited.is_resolved and share >= MATTERS:
        yield Advice(
            code="data_wait",
            message=f"Training waited for data in {percent(share)} of its time, "
            f"{duration(work.data_wait_s)}.",
            fix="more workers of the loader, batches fetched ahead, copies that overlap "
            "(pin_memory and non_blocking), or data nearer to the machine",
            saves_j=waited.value_j,
        )


def _idle(report: EnergyReport) -> Iterator[Advice]:
    for phase in report.phases:
        is_much = (phase.share or 0.0) >= MATTERS and phase.duration_s >= _LONG_S
        if phase.name == "idle" and phase.total.is_resolved and is_much:
            yield Advice(
                code="idle",
                message=f"The devices were on for {duration(phase.duration_s)} in which "
                f"nothing of the training ran, {figure_format.share(phase)} of the energy.",
                fix="let the script end when the work has, and load and save while it trains",
                saves_j=phase.total.energy_j,
            )


def _batch_size(report: EnergyReport) -> Iterator[Advice]:
    """Yield advice if the newest search chose a larger batch size, and this size saves energy.

    The chosen size is compared with the mean number of samples per step of the run. Runs with
    several ranks get no such advice.
    """
    done, steps = report.throughput, report.throughput.steps + report.throughput.replayed_steps
    train = next((phase for phase in report.phases if phase.name == "train"), None)
    if not (report.batch_sizes and done.samples and steps and train) or report.ranks:
        return
    curve = report.batch_sizes[-1]
    chosen, mine = curve.chosen, done.samples / steps
    if chosen is None or mine * _BELOW >= chosen.size * chosen.accumulation:
        return
    figure = train.gpu if chosen.scope == "gpu" else train.host
    share = _saved_share(curve, mine)
    if share is None or share < MATTERS or figure.energy_j is None:
        return
    yield Advice(
        code="batch_size",
        message=f"Steps had {mine:.4g} samples on average; at {chosen.size}, which was measured "
        f"and fits, a sample takes {percent(share)} less energy.",
        fix=f"train with a batch size of {chosen.size} and look at the learning rate",
        saves_j=share * figure.energy_j,
    )


def _saved_share(curve: BatchSizeCurve, batch: float) -> float | None:
    """Return what the batch size chosen by a search saves, as a share of the energy per sample.

    The energy per sample is interpolated between trials, linearly in the logarithm of the batch
    size.

    Args:
        curve: result of the search.
        batch: mean number of samples per step of the run.

    Returns:
        The share, which is negative if the chosen size needs more energy; ``None`` if no batch size
        was chosen, or if ``batch`` is smaller than all batch sizes whose energy is resolved.
    """
    known = sorted(
        (point.size * point.accumulation, point.j_per_sample.value_j)
        for point in curve.points
        if point.j_per_sample is not None and point.j_per_sample.is_resolved
    )
    chosen = curve.chosen
    if chosen is None or not known or batch < known[0][0]:
        return None
    sizes, joules = zip(*known, strict=True)
    logs = np.log(sizes)
    here, there = np.interp(np.log([batch, chosen.size * chosen.accumulation]), logs, joules)
    return float(1.0 - there / here)


def _late_stop(report: EnergyReport) -> Iterator[Advice]:
    late, total_j = late_stop(report.metrics), report.energy.total.energy_j
    if late is None or not total_j or not report.energy.total.is_resolved:
        return
    metric, best = late.metric, late.best
    share, name = late.after_j / total_j, one_line(metric.name)
    if share < MATTERS or late.after_s < _LONG_S:
        return
    epoch, step = metric.epoch[best], metric.step[best]
    found_at = duration(metric.t_s[best])
    if epoch is not None:
        found_at = f"epoch {epoch:.4g}"
    elif step is not None:
        found_at = f"step {grouped(step)}"
    yield Advice(
        code="late_stop",
        message=f"{name} was best at {found_at}, {metric.value[best]:.4g}, and "
        f"{metric.value[-1]:.4g} at the end; {percent(share)} of the energy, "
        f"{duration(late.after_s)}, came after it.",
        fix=f"stop early on {name}, after a few validations without a better one, and keep the "
        "best checkpoint",
        saves_j=late.after_j,
    )


def _throttling(report: EnergyReport) -> Iterator[Advice]:
    for device in report.devices:
        share = (device.throttled_s or 0.0) / report.run.duration_s if report.run.duration_s else 0
        if share >= MATTERS:
            yield Advice(
                code="throttling",
                message=f"{device.key} ({device.name}, {device.host}) was slowed down by heat or "
                f"by its power limit for {duration(device.throttled_s)}, "
                f"{percent(share)} of the time.",
                fix="better cooling; or a lower power limit, at which the same work often takes "
                "fewer joules",
                saves_j=None,
            )


def _straggler(rank: Imbalance) -> Advice:
    fix = _RANK_FIXES[rank.quantity]
    return Advice(code="straggler", message=rank.message, fix=fix, saves_j=None)


class _Candidate(NamedTuple):
    """Possible advice, which is given only if ``share`` is at least ``MATTERS``.

    Attributes:
        code: code of the advice.
        share: share of the time of a step that the problem takes, 0 to 1; ``None`` if not known or
            if the training does not have this problem.
        message: the evidence.
        fix: what the user can do.
    """

    code: Code
    share: float | None
    message: str
    fix: str


def kernel_advice(profile: Profile | None, *, given: Collection[Code] = ()) -> Iterator[Advice]:
    """Yield the advice that follows from a kernel profile.

    The saving is the share of a step's time that the problem takes, multiplied by the energy of all
    steps of the training.

    Args:
        profile: profile of the run; ``None`` if the run has none, which yields no advice.
        given: codes of the advice that the run already gets. If ``data_wait`` is among them, no
            advice on waiting for data is yielded.
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
