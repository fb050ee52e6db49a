"""Gets the energy and time of one job from reports and comparisons."""

from collections.abc import Iterator

from energy_callbacks.accounting.metrics.energy_sums import interval_j
from energy_callbacks.compare.model import Comparison, Effect
from energy_callbacks.projection.projection import Amount, JobUse, exact
from energy_callbacks.projection.text import Change
from energy_callbacks.report.analysis.power_limit import estimated_effect
from energy_callbacks.report.model.runs import devices_in_sum
from energy_callbacks.report.model.schema import EnergyReport


def job_of(report: EnergyReport) -> JobUse:
    """Return the energy and time of a run; the run counts as one job.

    The interval of the energy includes the errors of sensors and models. Time without readings is
    assumed to have the mean power of the time with readings; the interval includes the error of
    this assumption.

    Raises:
        ValueError: if the energy is not known, or if its coverage is less than one half.
    """
    interval = interval_j(report.energy.total)
    if interval is None:
        raise ValueError(
            f"the energy of {report.run.name or report.run.run_id} is not known, or less than "
            "half of its time was measured; give another run"
        )
    value_j, low_j, high_j = interval
    wall_s = report.run.duration_s
    gpus = sum(one.kind == "gpu" for one in devices_in_sum(report.devices, "gpu"))
    energy_j = Amount(value=value_j, low=low_j, high=high_j)
    return JobUse(energy_j=energy_j, wall_s=exact(wall_s), gpu_s=exact(wall_s * gpus))


def power_limit_saving(report: EnergyReport) -> tuple[str, JobUse] | None:
    """Return what a power limit has saved in a run, or would save, with a title; or ``None``.

    If the run has optimised its power limit, the saving is the measured one. Otherwise it is the
    estimate of the advice ``power_limit``: median, 10 % and 90 % quantile of measured trainings.
    """
    search = report.profile and report.profile.power_limit
    if search:
        saved = search.saved_j
        energy_j = Amount(value=saved.value, low=saved.low, high=saved.high)
        return "saved by the power limit", JobUse(energy_j=energy_j)
    train = next((phase for phase in report.phases if phase.name == "train"), None)
    effect = estimated_effect(report)
    if effect is None or train is None or train.gpu.energy_j is None:
        return None
    shares = Amount(value=effect.saving, low=effect.saving_low, high=effect.saving_high)
    title = f"estimated saving by a limit of {effect.limit_w:g} W"
    return title, JobUse(energy_j=shares.times(train.gpu.energy_j))


def warnings_of(report: EnergyReport) -> Iterator[str]:
    """Yield a warning for each reason why a run may not represent a job well."""
    name = report.run.name or report.run.run_id
    if report.run.status != "finished":
        yield (
            f"{name} is {report.run.status}: a job that finishes normally uses a different "
            "amount of energy."
        )
    if report.energy.total.origin != "measured":
        yield (
            f"A model estimates part of the energy of {name}; the interval includes the error "
            "of the model."
        )
    if not report.energy.total.is_resolved:
        yield f"{name} was too short to measure its energy."
    attempts = len({one.attempt for one in report.attempts})
    if attempts > 1:
        yield f"{name} has {attempts} attempts: here, a job is all of them together."


def changes_of(comparison: Comparison, label: str) -> list[Change]:
    """Return how energy and time per run change from the first group to each of the others.

    Args:
        comparison: comparison of two or more groups of runs.
        label: name of the comparison in error messages.

    Raises:
        ValueError: if the energy of whole runs was not compared.
    """
    first = comparison.groups[0]
    before_j, before_s = (first.means.get(name) for name in ("energy_j", "duration_s"))
    changes = []
    for group in comparison.groups[1:]:
        energy = comparison.effect(group.name, "energy_j")
        if energy is None or before_j is None:
            raise ValueError(
                f"the energy of whole runs of {group.name} and {first.name} is not known in "
                f"{label}, so the saving per job cannot be computed; compare runs whose energy "
                "is known"
            )
        time = comparison.effect(group.name, "duration_s")
        wall_s = None if before_s is None else exact(before_s)
        changes.append(
            Change(
                name=group.name,
                before=JobUse(energy_j=exact(before_j), wall_s=wall_s),
                energy_ratio=_ratio(energy),
                time_ratio=None if time is None else _ratio(time),
                energy_verdict=energy.verdict,
                time_verdict=time.verdict if time else "",
            )
        )
    return changes


def _ratio(effect: Effect) -> Amount:
    return Amount(value=effect.ratio, low=effect.low, high=effect.high)
