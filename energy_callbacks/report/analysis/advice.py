"""Advice, ranked by the energy that it would save, each with its evidence.

Advice is given only for measured faults that matter: a run without a fault gets none.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from energy_callbacks.core import formatting
from energy_callbacks.report.analysis.kernel_advice import kernel_advice
from energy_callbacks.report.analysis.late_stop import late_stop
from energy_callbacks.report.model import figure_format
from energy_callbacks.report.model.batch_sizes import BatchSizeCurve
from energy_callbacks.report.model.models import Imbalance
from energy_callbacks.report.model.recommendation import MATTERS, Advice
from energy_callbacks.report.model.schema import EnergyReport

# Each script is idle for a few seconds at its start and end.
_LONG_S: Final = 10.0
# A batch size differs from the chosen one if it is smaller by this factor.
_BELOW: Final = 1.2
_RANK_FIXES: Final = {
    "data_wait": "give that rank's loader more workers, or data that are as near as the others'",
    "samples_per_step": "give all ranks as many samples, with a distributed sampler",
    "gpu_power": "look for heat, other work, or a slower card on that rank's host",
}


def advice(report: EnergyReport) -> tuple[Advice, ...]:
    """Returns what a run should change, largest saving first."""
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
            message=f"Training waited for data in {formatting.percent(share)} of its time, "
            f"{formatting.duration(work.data_wait_s)}.",
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
                message=f"The devices were on for {formatting.duration(phase.duration_s)} in which "
                f"nothing of the training ran, {figure_format.share(phase)} of the energy.",
                fix="let the script end when the work has, and load and save while it trains",
                saves_j=phase.total.energy_j,
            )


def _batch_size(report: EnergyReport) -> Iterator[Advice]:
    """Compares the batch size with the newest search; only for trainings of one process."""
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
        f"and fits, a sample takes {formatting.percent(share)} less energy.",
        fix=f"train with a batch size of {chosen.size} and look at the learning rate",
        saves_j=share * figure.energy_j,
    )


def _saved_share(curve: BatchSizeCurve, batch: float) -> float | None:
    """Returns the share of the energy of a sample that the chosen batch size saves.

    Energies are interpolated between measured points, over the logarithm of the batch size.
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
    share, name = late.after_j / total_j, formatting.one_line(metric.name)
    if share < MATTERS or late.after_s < _LONG_S:
        return
    epoch, step = metric.epoch[best], metric.step[best]
    found_at = formatting.duration(metric.t_s[best])
    if epoch is not None:
        found_at = f"epoch {epoch:.4g}"
    elif step is not None:
        found_at = f"step {formatting.grouped(step)}"
    yield Advice(
        code="late_stop",
        message=f"{name} was best at {found_at}, {metric.value[best]:.4g}, and "
        f"{metric.value[-1]:.4g} at the end; {formatting.percent(share)} of the energy, "
        f"{formatting.duration(late.after_s)}, came after it.",
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
                f"by its power limit for {formatting.duration(device.throttled_s)}, "
                f"{formatting.percent(share)} of the time.",
                fix="better cooling; or a lower power limit, at which the same work often takes "
                "fewer joules",
                saves_j=None,
            )


def _straggler(rank: Imbalance) -> Advice:
    fix = _RANK_FIXES[rank.quantity]
    return Advice(code="straggler", message=rank.message, fix=fix, saves_j=None)
