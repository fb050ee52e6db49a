"""Advice, ranked by the energy that it would save, each with its evidence.

Told only if it was measured and if it matters: a run without a fault gets no advice.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from energy_callbacks.core import formatting
from energy_callbacks.report.analysis.kernel_advice import kernel_advice
from energy_callbacks.report.analysis.late_stop import late_stop
from energy_callbacks.report.model import figure_format
from energy_callbacks.report.model.recommendation import MATTERS, Advice

if TYPE_CHECKING:
    from energy_callbacks.report.model.batch_sizes import BatchSizeCurve
    from energy_callbacks.report.model.schema import EnergyReport

# Any start and end of a script is idle for seconds.
_LONG_S: Final = 10.0
# A batch this much below the measured one is another batch.
_BELOW: Final = 1.2
_RANK_FIXES: Final = {
    "data_wait": "give that rank's loader more workers, or data that are as near as the others'",
    "samples_per_step": "give all ranks as many samples, with a distributed sampler",
    "gpu_power": "look for heat, other work, or a slower card on that rank's host",
}


def advice(report: "EnergyReport") -> tuple[Advice, ...]:
    """What a run should change, what saves most first."""
    found = [
        *_data_wait(report),
        *_idle(report),
        *_batch_size(report),
        *_late_stop(report),
        *_throttling(report),
        *_stragglers(report),
    ]
    found += kernel_advice(report.profile, told={one.code for one in found})
    return tuple(sorted(found, key=lambda one: one.saves_j or 0.0, reverse=True))


def _data_wait(report: "EnergyReport") -> Iterator[Advice]:
    done = report.throughput
    waited = None if done.data_wait is None else done.data_wait.total
    share = done.data_wait_fraction or 0.0
    if waited is None or not waited.is_resolved or share < MATTERS:
        return
    yield Advice(
        code="data_wait",
        message=f"Training waited for data in {formatting.percent(share)} of its time, "
        f"{formatting.duration(done.data_wait_s)}.",
        fix="more workers of the loader, batches fetched ahead, copies that overlap "
        "(pin_memory and non_blocking), or data nearer to the machine",
        saves_j=waited.value_j,
    )


def _idle(report: "EnergyReport") -> Iterator[Advice]:
    for phase in report.phases:
        energy_j = phase.total.energy_j
        is_much = (phase.share or 0.0) >= MATTERS and phase.duration_s >= _LONG_S
        is_known = energy_j is not None and phase.total.is_resolved
        if phase.name == "idle" and is_known and is_much:
            yield Advice(
                code="idle",
                message=f"The devices were on for {formatting.duration(phase.duration_s)} in which "
                f"nothing of the training ran, {figure_format.share(phase)} of the energy.",
                fix="let the script end when the work has, and load and save while it trains",
                saves_j=energy_j,
            )


def _batch_size(report: "EnergyReport") -> Iterator[Advice]:
    """The batch of the training beside the newest measured curve; of one process."""
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


def _saved_share(curve: "BatchSizeCurve", batch: float) -> float | None:
    """Of the energy of a sample, between a batch and the chosen one, by measured points."""
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


def _late_stop(report: "EnergyReport") -> Iterator[Advice]:
    late, total_j = late_stop(report.metrics), report.energy.total.energy_j
    if late is None or not total_j or not report.energy.total.is_resolved:
        return
    share, name = late.after_j / total_j, formatting.one_line(late.metric.name)
    if share < MATTERS or late.after_s < _LONG_S:
        return
    epoch, step = late.metric.epoch[late.best], late.metric.step[late.best]
    found_at = formatting.duration(late.metric.t_s[late.best])
    if epoch is not None:
        found_at = f"epoch {epoch:.4g}"
    elif step is not None:
        found_at = f"step {formatting.grouped(step)}"
    best, last = (f"{late.metric.value[at]:.4g}" for at in (late.best, -1))
    yield Advice(
        code="late_stop",
        message=f"{name} was best at {found_at}, {best}, and {last} at the end; "
        f"{formatting.percent(share)} of the energy, {formatting.duration(late.after_s)}, came "
        "after it.",
        fix=f"stop early on {name}, after a few validations without a better one, and keep the "
        "best checkpoint",
        saves_j=late.after_j,
    )


def _throttling(report: "EnergyReport") -> Iterator[Advice]:
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


def _stragglers(report: "EnergyReport") -> Iterator[Advice]:
    for one in report.imbalances:
        yield Advice(
            code="straggler", message=one.message, fix=_RANK_FIXES[one.quantity], saves_j=None
        )
