"""Derives advice from a report, largest saving of energy first.

Advice is given only for a measured problem that exceeds a threshold: a share of the energy or, if
the energy is not known, of the time. A report without such a problem gets no advice.
"""

from collections.abc import Callable, Collection, Iterator
from typing import Final, NamedTuple

import numpy as np

from energy_callbacks.core.formatting import duration, grouped, one_line, percent
from energy_callbacks.report.analysis.late_stop import late_stop
from energy_callbacks.report.analysis.power_limit import power_limit_advice
from energy_callbacks.report.model.batch_sizes import BatchSizeCurve, BatchSizePoint
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
    "data_wait": "use more data-loader workers on that rank, or move its data closer",
    "samples_per_step": "give all ranks the same number of samples, with a distributed sampler",
    "gpu_power": "check the host of that rank for heat, other processes, or a slower GPU",
}
# Classes of kernels that can be fused with others. Without fusion, they read and write intermediate
# values in memory; a fused kernel keeps these values in registers.
_FUSIBLE: Final = ("elementwise and reduction", "normalisation")


def advice(report: EnergyReport) -> tuple[Advice, ...]:
    """Return the advice for a run, largest saving of energy first.

    Advice whose saving of energy is not known comes last, largest saving of time first.
    """
    found = [
        *_data_wait(report),
        *_idle(report),
        *_batch_size(report),
        *_late_stop(report),
        *power_limit_advice(report),
        *_throttling(report),
        *map(_straggler, report.imbalances),
    ]
    found += kernel_advice(report.profile, given={one.code for one in found})
    return tuple(
        sorted(found, key=lambda one: (one.saves_j or 0.0, one.saves_s or 0.0), reverse=True)
    )


def nothing_found(report: EnergyReport) -> str:
    """Return the sentence that is shown if a report has no advice: what was checked."""
    checks = {
        "idle time": any(phase.name in ("idle", "train") for phase in report.phases),
        "waits for data": report.throughput.data_wait_fraction is not None,
        "throttling": any(device.throttled_s is not None for device in report.devices),
        "training after the best validation": any(one.is_validation for one in report.metrics),
        "differences between ranks": bool(report.ranks),
    }
    checked = ", ".join(name for name, is_known in checks.items() if is_known)
    if not checked:
        return "This run has no data from which recommendations can be derived."
    return f"Nothing to change was found (checked: {checked})."


def _data_wait(report: EnergyReport) -> Iterator[Advice]:
    work = report.throughput
    waited = work.data_wait and work.data_wait.total
    share = work.data_wait_fraction or 0.0
    if share >= MATTERS:
        yield Advice(
            code="data_wait",
            message=f"Waiting for data took {percent(share)} of the training time "
            f"({duration(work.data_wait_s)}).",
            fix="use more data-loader workers, prefetch batches, overlap copies with computation "
            "(pin_memory, non_blocking), or move the data closer to the machine",
            saves_j=waited.value_j if waited and waited.is_resolved else None,
            saves_s=work.data_wait_s,
        )


def _idle(report: EnergyReport) -> Iterator[Advice]:
    for phase in report.phases:
        energy_j = phase.total.resolved_j
        share, of = phase.share or 0.0, "energy"
        if energy_j is None and report.run.duration_s > 0.0:
            share, of = phase.duration_s / report.run.duration_s, "time"
        if phase.name == "idle" and share >= MATTERS and phase.duration_s >= _LONG_S:
            yield Advice(
                code="idle",
                message=f"The devices were idle for {duration(phase.duration_s)} "
                f"({percent(share)} of the {of}).",
                fix="end the script when its work is done, and load and save data during the "
                "training",
                saves_j=energy_j,
                saves_s=phase.duration_s,
            )


def _batch_size(report: EnergyReport) -> Iterator[Advice]:
    """Yield advice if the newest search chose a larger batch size, and this size saves energy.

    The chosen size is compared with the mean number of samples per step of the run. If the energy
    per sample is not known, the time per sample is compared. Runs with several ranks get no such
    advice.
    """
    done, steps = report.throughput, report.throughput.steps + report.throughput.replayed_steps
    train = next((phase for phase in report.phases if phase.name == "train"), None)
    if not (report.batch_sizes and done.samples and steps and train) or report.ranks:
        return
    curve = report.batch_sizes[-1]
    chosen, mine = curve.chosen, done.samples / steps
    if chosen is None or mine * _BELOW >= chosen.size * chosen.accumulation:
        return
    energy_j = (train.gpu if chosen.scope == "gpu" else train.host).energy_j
    share = None if energy_j is None else _saved_share(curve, mine, _j_per_sample)
    time_share = _saved_share(curve, mine, _s_per_sample)
    most, of = (time_share, "time") if share is None else (share, "energy")
    if most is None or most < MATTERS:
        return
    yield Advice(
        code="batch_size",
        message=f"Steps had {mine:.4g} samples on average. With a batch size of {chosen.size}, "
        f"which fits in memory, a trial used {percent(most)} less {of} per sample.",
        fix=f"train with a batch size of {chosen.size}, and adapt the learning rate",
        saves_j=None if share is None or energy_j is None else share * energy_j,
        saves_s=time_share * train.duration_s if time_share and time_share > 0.0 else None,
    )


def _j_per_sample(point: BatchSizePoint) -> float | None:
    ratio = point.j_per_sample
    return ratio.value_j if ratio is not None and ratio.is_resolved else None


def _s_per_sample(point: BatchSizePoint) -> float | None:
    return 1.0 / point.samples_per_s if point.samples_per_s else None


def _saved_share(
    curve: BatchSizeCurve, batch: float, cost: Callable[[BatchSizePoint], float | None]
) -> float | None:
    """Return what the batch size chosen by a search saves, as a share of the cost per sample.

    The cost per sample is interpolated between trials, linearly in the logarithm of the batch size.

    Args:
        curve: result of the search.
        batch: mean number of samples per step of the run.
        cost: function that returns the cost per sample in a trial; ``None`` if not known.

    Returns:
        The share, which is negative if the chosen size costs more; ``None`` if no batch size was
        chosen, or if ``batch`` is smaller than all batch sizes whose cost is known.
    """
    known = sorted(
        (point.size * point.accumulation, value)
        for point in curve.points
        if (value := cost(point)) is not None
    )
    chosen = curve.chosen
    if chosen is None or not known or batch < known[0][0]:
        return None
    sizes, costs = zip(*known, strict=True)
    logs = np.log(sizes)
    here, there = np.interp(np.log([batch, chosen.size * chosen.accumulation]), logs, costs)
    return float(1.0 - there / here)


def _late_stop(report: EnergyReport) -> Iterator[Advice]:
    late, total_j = late_stop(report.metrics), report.energy.total.resolved_j
    if late is None or late.after_s < _LONG_S:
        return
    metric, best, name = late.metric, late.best, one_line(late.metric.name)
    saves_j = late.after_j if total_j else None
    if saves_j is None or total_j is None:
        share, of = late.after_s / report.run.duration_s, "time"
    else:
        share, of = saves_j / total_j, "energy"
    if share < MATTERS:
        return
    epoch, step = metric.epoch[best], metric.step[best]
    found_at = duration(metric.t_s[best])
    if epoch is not None:
        found_at = f"epoch {epoch:.4g}"
    elif step is not None:
        found_at = f"step {grouped(step)}"
    yield Advice(
        code="late_stop",
        message=f"{name} was best at {found_at} ({metric.value[best]:.4g}) and "
        f"{metric.value[-1]:.4g} at the end. The training after the best value took "
        f"{percent(share)} of the {of} ({duration(late.after_s)}).",
        fix=f"stop early if {name} does not improve for a few validations, and keep the best "
        "checkpoint",
        saves_j=saves_j,
        saves_s=late.after_s,
    )


def _throttling(report: EnergyReport) -> Iterator[Advice]:
    for device in report.devices:
        share = (device.throttled_s or 0.0) / report.run.duration_s if report.run.duration_s else 0
        if share >= MATTERS:
            yield Advice(
                code="throttling",
                message=f"{device.key} ({device.name}, {device.host}) was throttled by heat or by "
                f"its power limit for {duration(device.throttled_s)} ({percent(share)} of the "
                "time).",
                fix="improve the cooling, or set a lower power limit, with which the same work "
                "often uses less energy",
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
            step_s, energy_j = kernels.step_s, kernels.energy_j
            yield Advice(
                code=one.code,
                message=one.message,
                fix=one.fix,
                saves_j=None if energy_j is None else one.share * energy_j,
                saves_s=None if step_s is None else one.share * step_s * kernels.steps,
            )


def _input(kernels: KernelProfile) -> _Candidate:
    share = kernels.idle_share("input")
    return _Candidate(
        "input_bound",
        share,
        f"The device was idle for {percent(share)} of a step while the next batch was fetched.",
        "set num_workers, prefetch_factor, persistent_workers and pin_memory of the data loader, "
        "copy with non_blocking=True, or decode less per sample",
    )


def _launch(kernels: KernelProfile) -> _Candidate:
    share = kernels.idle_share("launch")
    return _Candidate(
        "launch_bound",
        share,
        f"The device was idle for {percent(share)} of a step while the host launched its "
        f"{kernels.kernels_per_step or 0.0:.0f} kernels.",
        "use a larger batch, torch.compile(mode='reduce-overhead') or CUDA graphs, and foreach or "
        "fused optimizers",
    )


def _memory(kernels: KernelProfile) -> _Candidate:
    share = sum(map(kernels.share_of, _FUSIBLE)) if kernels.bound == "memory" else None
    return _Candidate(
        "memory_bound",
        share,
        f"{kernels.sentence} Elementwise and normalisation kernels, which can be fused with other "
        f"kernels, took {percent(share)} of the time.",
        "fuse them with torch.compile; halve the bytes with bf16 or fp16; use channels_last for "
        "convolutions, and fused attention and optimizers",
    )


def _copies(kernels: KernelProfile) -> _Candidate:
    share = None
    if kernels.copy_s and kernels.copy_overlap is not None and kernels.device_s:
        share = kernels.copy_s * (1.0 - kernels.copy_overlap) / kernels.device_s
    return _Candidate(
        "copies",
        share,
        f"Copies between host and device, during which no kernel ran, took {percent(share)} of a "
        "step.",
        "use pin_memory=True in the data loader and .to(device, non_blocking=True); copy the next "
        "batch on a separate stream during the computation",
    )
