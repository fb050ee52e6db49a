"""The results of a matrix: a row for each configuration, the cheapest first."""

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


# A clock that was set back by less makes no two jobs of one after the other.
_SLACK_S: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedJob:
    """A job that ended well.

    Attributes:
        report: ``None`` if its run folder could not be read.
    """

    job: MatrixJob
    outcome: Outcome
    report: EnergyReport | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationRow:
    """One configuration; means over the jobs that ended well, ``None`` if not known.

    Attributes:
        energies_j: of each job whose energy is known and resolved.
        metric: the best value of the metric that the file names.
        failed: how jobs ended that did not end well.
        missing: jobs that have not ended, or not begun.
    """

    parameters: Mapping[str, str]
    name: str
    done: Sequence[FinishedJob]
    energies_j: Sequence[float]
    energy_j: float | None
    j_per_sample: float | None
    duration_s: float | None
    metric: float | None
    failed: Sequence[tuple[MatrixJob, Outcome]]
    missing: int

    @property
    def folders(self) -> list[Path]:
        """The run folders that count."""
        return [one.outcome.folder for one in self.done]


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixTable:
    """All rows, the cheapest first; those whose energy is not known last.

    Attributes:
        scope: which energy is shown: the GPUs' alone if jobs shared a host.
        notes: what to know before the numbers.
    """

    rows: Sequence[ConfigurationRow]
    scope: Scope
    notes: Sequence[str]


def table(plan: MatrixPlan, results: Results) -> MatrixTable:
    """Read everything that jobs have left."""
    jobs = plan.jobs()
    found = {job.folder: results.outcome(job) for job in jobs}
    done = {
        key: FinishedJob(job=job, outcome=outcome, report=_report(outcome.folder))
        for job in jobs
        if (outcome := found[(key := job.folder)]) is not None and outcome.is_done
    }
    tries = [one for job in jobs for one in results.outcomes(job)]
    scope: Scope = "gpu" if _share_hosts(tries) else "total"
    by_name: dict[str, list[MatrixJob]] = {}
    for job in jobs:
        by_name.setdefault(job.configuration, []).append(job)
    rows = [_row(mine, found, done, scope, plan) for mine in by_name.values()]
    rows.sort(key=lambda row: (row.energy_j is None, row.energy_j or 0.0))
    return MatrixTable(rows=rows, scope=scope, notes=list(_notes(rows, scope, plan)))


def _row(
    jobs: Sequence[MatrixJob],
    found: Mapping[Path, Outcome | None],
    done: Mapping[Path, FinishedJob],
    scope: Scope,
    plan: MatrixPlan,
) -> ConfigurationRow:
    mine = [done[job.folder] for job in jobs if job.folder in done]
    outcomes = [(job, found[job.folder]) for job in jobs if job.folder not in done]
    failed = [(job, one) for job, one in outcomes if one is not None and not one.is_running]
    reports = [one.report for one in mine if one.report is not None]
    energies_j = [
        figure.energy_j
        for figure in (getattr(report.energy, scope) for report in reports)
        if figure.energy_j and figure.is_resolved
    ]
    ratios = [getattr(report.efficiency, scope).j_per_sample for report in reports]
    return ConfigurationRow(
        parameters=jobs[0].parameters,
        name=jobs[0].configuration,
        done=mine,
        energies_j=energies_j,
        energy_j=geometric_mean(energies_j) if energies_j else None,
        j_per_sample=_mean(ratio.value_j for ratio in ratios if ratio is not None),
        duration_s=_mean(report.run.duration_s for report in reports),
        metric=_mean(value for report in reports if (value := best(report, plan)) is not None),
        failed=failed,
        missing=len(outcomes) - len(failed),
    )


def best(report: EnergyReport, plan: MatrixPlan) -> float | None:
    """The best value of the plan's metric in a report; ``None`` if it has none of that name."""
    found = [one for one in report.metrics if one.name == plan.metric and one.value]
    if not found:
        return None
    return min(found[0].value) if plan.goal == "lower" else max(found[0].value)


def _report(folder: Path) -> EnergyReport | None:
    saved = folder / "energy_report.json"
    try:
        return load(saved if saved.exists() else folder)
    except (JournalError, OSError):
        return None


def _mean(values: Iterable[float]) -> float | None:
    known = list(values)
    return fmean(known) if known else None


def _share_hosts(tries: Iterable[Outcome]) -> bool:
    """Whether two of them ran on one host at the same time: then its CPU and RAM were of both.

    Those that failed count as well; a clock that was set back a little does not.
    """
    return any(
        one.host == other.host
        and min(_end(one), _end(other)) - max(one.started_unix_s, other.started_unix_s) > _SLACK_S
        for one, other in combinations(tries, 2)
    )


def _end(one: Outcome) -> float:
    """It is unknown for one that was killed."""
    return one.started_unix_s if one.ended_unix_s is None else one.ended_unix_s


def _notes(rows: Sequence[ConfigurationRow], scope: Scope, plan: MatrixPlan) -> Iterable[str]:
    if scope == "gpu":
        yield (
            "Jobs ran on one host at the same time, so its CPU and RAM cannot be told apart: "
            "energies are those of the GPUs alone."
        )
    if len({_cards(row) for row in rows if row.done}) > 1:
        yield (
            "Configurations ran on different cards, and cards of one kind differ by some per "
            "cent; run more repeats, or all on one card (gpus = 1)."
        )
    if plan.repeats % 2 and plan.repeats > 1:
        yield (
            f"{plan.repeats} repeats are an odd number: the order of the last is not made up for "
            "by a reversed one."
        )
    done = [row for row in rows if row.done]
    if plan.metric is not None and done and all(row.metric is None for row in done):
        known = sorted(
            {m.name for row in rows for one in row.done if one.report for m in one.report.metrics}
        )
        yield (
            f"No report has the metric {plan.metric!r}; "
            + (f"they have {', '.join(known)}." if known else "they have none.")
        )
    if any(len(row.energies_j) < len(row.done) for row in rows):
        yield (
            "Of some jobs the energy is not known, or they were too short to tell; their own "
            "reports say why."
        )


def _cards(row: ConfigurationRow) -> tuple[str, ...]:
    """Identities of all cards that its jobs have used."""
    reports = [one.report for one in row.done if one.report is not None]
    return tuple(
        sorted(
            {
                d.key if d.uuid is None else d.uuid
                for report in reports
                for d in report.devices
                if d.kind == "gpu"
            }
        )
    )
