"""Computes the results of a matrix as a table with one row per configuration."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import fmean, geometric_mean
from typing import Final, Literal

from energy_callbacks.core.errors import JournalError
from energy_callbacks.matrix.attempts import Outcome, Results
from energy_callbacks.matrix.plan import MatrixJob, MatrixPlan
from energy_callbacks.report import EnergyReport, load

Scope = Literal["gpu", "total"]
# Two attempts that overlap by at most this time, in seconds, count as consecutive, because the wall
# clock may have been set back between them.
_SLACK_S: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationRow:
    """One configuration, with means over its successful jobs; a mean is ``None`` if unknown.

    Attributes:
        parameters: parameter names to values.
        name: short name of the configuration.
        done: successful jobs, each with the outcome of its successful attempt.
        reports: reports of the successful jobs, except unreadable ones.
        measured: those of ``reports`` whose energy in the table's scope is resolved and not 0.
        energies_j: energy in joules of each report in ``measured``.
        energy_j: geometric mean of ``energies_j``.
        j_per_sample: mean energy per training sample in the table's scope, in joules, over the
            reports in which it is resolved.
        duration_s: mean duration of the runs in ``reports``, in seconds.
        peak_memory_bytes: mean of the highest memory in use on any GPU of a run.
        mean_memory_bytes: mean of the mean memory in use on the GPU with the highest peak.
        metric: mean over ``reports`` of the best value of the plan's metric.
        failed: jobs that ended without success, each with the outcome of its newest attempt.
        missing: number of jobs that have not begun or are still running.
    """

    parameters: Mapping[str, str]
    name: str
    done: Sequence[tuple[MatrixJob, Outcome]]
    reports: Sequence[EnergyReport]
    measured: Sequence[EnergyReport]
    energies_j: Sequence[float]
    energy_j: float | None
    j_per_sample: float | None
    duration_s: float | None
    peak_memory_bytes: float | None
    mean_memory_bytes: float | None
    metric: float | None
    failed: Sequence[tuple[MatrixJob, Outcome]]
    missing: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixTable:
    """The rows of all configurations.

    Attributes:
        rows: one row per configuration; ``read_table`` sorts them by increasing energy, with
            unknown energy last.
        scope: ``gpu`` if jobs ran on one host at the same time, because the host's energy cannot be
            divided between them; otherwise ``total``.
        notes: limitations of the figures, as sentences.
    """

    rows: Sequence[ConfigurationRow]
    scope: Scope
    notes: Sequence[str]


def read_table(plan: MatrixPlan, results: Results) -> MatrixTable:
    """Return the table of a matrix from the results of its jobs so far."""
    jobs = plan.jobs()
    attempts = [one for job in jobs for one in results.outcomes(job)]
    scope: Scope = "gpu" if _share_hosts(attempts) else "total"
    rows = [
        _row([job for job in jobs if job.parameters == parameters], plan, results, scope)
        for parameters in plan.configurations
    ]
    rows.sort(key=lambda row: (row.energy_j is None, row.energy_j or 0.0))
    return MatrixTable(rows=rows, scope=scope, notes=list(_notes(rows, scope, plan)))


def _row(
    jobs: Sequence[MatrixJob], plan: MatrixPlan, results: Results, scope: Scope
) -> ConfigurationRow:
    outcomes = [(job, one) for job in jobs if (one := results.outcome(job)) is not None]
    done = [(job, one) for job, one in outcomes if one.is_done]
    failed = [(job, one) for job, one in outcomes if not one.is_done and not one.is_running]
    reports = [report for _, one in done if (report := _report(one.folder)) is not None]
    measured = [one for one in reports if _energy_j(one, scope)]
    energies_j = [energy_j for one in reports if (energy_j := _energy_j(one, scope))]
    ratios = [getattr(report.efficiency, scope).j_per_sample for report in reports]
    return ConfigurationRow(
        parameters=jobs[0].parameters,
        name=jobs[0].configuration,
        done=done,
        reports=reports,
        measured=measured,
        energies_j=energies_j,
        energy_j=geometric_mean(energies_j) if energies_j else None,
        j_per_sample=_mean(one.value_j for one in ratios if one is not None and one.is_resolved),
        duration_s=_mean(report.run.duration_s for report in reports),
        peak_memory_bytes=_mean(one.memory.device_used_peak_bytes for one in reports),
        mean_memory_bytes=_mean(one.memory.device_used_mean_bytes for one in reports),
        metric=_mean(_best_metric(one, plan) for one in reports),
        failed=failed,
        missing=len(jobs) - len(done) - len(failed),
    )


def _energy_j(report: EnergyReport, scope: Scope) -> float | None:
    """Return the energy of a scope in a report, J; ``None`` if it is unknown or not resolved."""
    figure = report.energy.gpu if scope == "gpu" else report.energy.total
    return figure.resolved_j


def _best_metric(report: EnergyReport, plan: MatrixPlan) -> float | None:
    """Return the best value of the plan's metric in a report; ``None`` if the report lacks it."""
    values = next((one.value for one in report.metrics if one.name == plan.metric), ())
    return (min if plan.goal == "lower" else max)(values, default=None)


def _report(folder: Path) -> EnergyReport | None:
    saved = folder / "energy_report.json"
    try:
        return load(saved if saved.exists() else folder)
    except (JournalError, OSError):
        return None


def _mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the known values; ``None`` if none is known."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _share_hosts(attempts: Iterable[Outcome]) -> bool:
    """Return whether any two attempts ran on one host at the same time and shared its CPU and RAM.

    Failed attempts count, too. Killed and running attempts do not, because their end is unknown.
    """
    return any(
        one.host == other.host
        and min(_end_s(one), _end_s(other)) - max(one.started_unix_s, other.started_unix_s)
        > _SLACK_S
        for one, other in combinations(attempts, 2)
    )


def _end_s(one: Outcome) -> float:
    """Return the Unix time of an attempt's end, or of its start if the end is unknown."""
    return one.started_unix_s if one.ended_unix_s is None else one.ended_unix_s


def _notes(rows: Sequence[ConfigurationRow], scope: Scope, plan: MatrixPlan) -> Iterable[str]:
    done = [row for row in rows if row.done]
    if scope == "gpu":
        yield (
            "Jobs ran on one host at the same time, so the energy of its CPU and RAM cannot be "
            "divided among them: energies are those of the GPUs only."
        )
    if len({_cards(row) for row in done}) > 1:
        yield (
            "Configurations ran on different cards, and cards of one model differ by a few per "
            "cent; run more repeats, or all on one card (gpus = 1)."
        )
    if plan.repeats % 2 and plan.repeats > 1:
        yield (
            f"The number of repeats, {plan.repeats}, is odd: no repeat in reverse order "
            "balances the order of the last one."
        )
    if plan.metric is not None and done and all(row.metric is None for row in done):
        names = {one.name for row in done for report in row.reports for one in report.metrics}
        yield (
            f"No report has the metric {plan.metric!r}; "
            + (f"they have {', '.join(sorted(names))}." if names else "they have none.")
        )
    if any(len(row.measured) < len(row.done) for row in rows):
        yield (
            "For some jobs the energy is not known, or they were too short to measure; their "
            "reports contain the reasons."
        )


def _cards(row: ConfigurationRow) -> frozenset[str]:
    """Return the UUIDs of all GPUs in a configuration's reports.

    If a UUID is unknown, the key of the GPU is used instead.
    """
    gpus = [one for report in row.reports for one in report.devices if one.kind == "gpu"]
    return frozenset(gpu.uuid or gpu.key for gpu in gpus)
