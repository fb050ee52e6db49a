"""Formats projections as rows of text, for tables in a terminal or in Markdown, with notes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from energy_callbacks.core import formatting
from energy_callbacks.projection.projection import (
    DAYS_A_YEAR,
    Amount,
    Fleet,
    JobUse,
    Projection,
    exact,
    one_job,
    project,
)

# Number of significant digits, and maximum length of a name in a table, in characters.
_DIGITS, _LONGEST_NAME = 4, 20
_Row = tuple[str, ...]

# Name and number of days of each table; the table with 0 days is for one job.
PERIODS: Final = (("a job", 0.0), ("a day", 1.0), ("a year", float(DAYS_A_YEAR)))
# Column heads of the rows that ``conclusion`` returns.
CONCLUSION: Final = ("improvement", "performance impact", "energy savings", "saving at scale")
# Title of each quantity, its field in ``Projection``, the unit of the field, and a unit 1000 times
# smaller for the table of one job (empty: the unit of the field is used).
_QUANTITIES: Final = (
    ("energy", "energy_kwh", "kWh", "Wh"),
    ("emissions", "emissions_kg", "kgCO2e", "gCO2e"),
    ("GPU-hours", "gpu_h", "h", ""),
    ("hours of jobs", "wall_h", "h", ""),
)
_FACTORS: Final = "Energy per day = jobs x energy of a job x PUE x (1 + scheduler overhead)"
_INTERVALS: Final = (
    "Intervals are of 95 %. The error of a job is multiplied by the number of jobs: errors of "
    "sensors and models are the same in every job and do not average out. One run does not show "
    "how much jobs differ from one another."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectionColumn:
    """A job, or the difference between two jobs, that the tables show under a title.

    Attributes:
        title: title of the rows.
        job: energy and time of the job; for a difference, those of the first job minus those of the
            second.
    """

    title: str
    job: JobUse


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The effect of a change on a known job; ``conclusion`` returns one row for it.

    Attributes:
        name: name of the change.
        before: the job without the change.
        energy_ratio: energy with the change divided by energy without it; the interval may be
            unknown.
        time_ratio: time with the change divided by time without it; ``None`` if not known.
        energy_verdict: ``lower``, ``higher``, ``not resolved`` or ``not measured``.
        time_verdict: the verdict on the time, with the same words; empty if not known.
    """

    name: str
    before: JobUse
    energy_ratio: Amount
    time_ratio: Amount | None
    energy_verdict: str
    time_verdict: str


def value(amount: Amount | None, unit: str) -> str:
    """Return the value with its unit, or the interval with its unit if the value is not known.

    Returns ``formatting.UNKNOWN`` if ``amount`` is ``None``.

    >>> value(Amount(value=750.0, low=600.0, high=900.0), "kWh")
    '750 kWh'
    >>> value(Amount(value=None, low=20.0, high=1234567.0), "kg")
    '20 to 1 235 000 kg'
    >>> value(Amount(value=None, low=None, high=None), "kg")
    'kg not known'
    """
    if amount is None:
        return formatting.UNKNOWN
    if amount.value is None and amount.low is None:
        return f"{unit} {formatting.UNKNOWN}".lstrip()
    number = _ends(amount) if amount.value is None else _number(amount.value)
    return f"{number} {unit}".rstrip()


def interval(amount: Amount | None) -> str:
    """Return the ends of the interval without a unit; ``""`` if the value is exact or not known.

    >>> interval(Amount(value=750.0, low=600.0, high=900.0))
    '600 to 900'
    >>> interval(Amount(value=750.0, low=None, high=None))
    'interval not known'
    """
    if amount is None or amount.value is None or amount.low == amount.high is not None:
        return ""
    return _ends(amount)


def _ends(amount: Amount) -> str:
    if amount.low is None or amount.high is None:
        return "interval not known"
    return f"{_number(amount.low)} to {_number(amount.high)}"


def _number(value: float) -> str:
    """Return a number rounded to four significant digits, with grouped thousands."""
    rounded = float(f"{value:.{_DIGITS}g}")
    return formatting.grouped(rounded) if abs(rounded) >= 1000.0 else f"{rounded:g}"


def over(job: JobUse, fleet: Fleet, days: float) -> Projection:
    """Return the projection for all jobs of a number of days, or for one job if ``days`` is 0."""
    return project(job, fleet, days=days) if days else one_job(job, fleet)


def tables(columns: Sequence[ProjectionColumn], fleet: Fleet) -> Iterator[tuple[_Row, list[_Row]]]:
    """Yield head and rows of one table per period; each quantity has one row per job or saving.

    Args:
        columns: the jobs or savings to compare, each with the title of its rows.
        fleet: number of jobs and properties of the data centre.
    """
    quantities = [*_QUANTITIES]
    if fleet.price_per_kwh is not None:
        quantities.append(("cost of electricity", "money", fleet.currency or "", ""))
    for period, days in PERIODS:
        projections = [over(column.job, fleet, days) for column in columns]
        rows: list[_Row] = []
        for title, field, unit, small_unit in quantities:
            for i, column in enumerate(columns):
                amount, shown_unit = getattr(projections[i], field), unit
                if not days and small_unit:
                    amount, shown_unit = amount and amount.times(1e3), small_unit
                cells = (value(amount, shown_unit), interval(amount))
                name = formatting.clipped(column.title, _LONGEST_NAME)
                rows.append(("" if i else title, name, *cells))
        yield (period, "", "", "95 % interval"), rows


def conclusion(changes: Sequence[Change], fleet: Fleet) -> list[_Row]:
    """Return one row per change, with the columns ``CONCLUSION``; cells have one or more lines."""
    return [_concluded(change, fleet) for change in changes]


def _concluded(change: Change, fleet: Fleet) -> _Row:
    saving = change.before.saving(change.energy_ratio, change.time_ratio)
    scale = []
    for period, days in (("day", 1.0), ("year", DAYS_A_YEAR)):
        saved = project(saving, fleet, days=days)
        for amount, unit in ((saved.energy_kwh, "kWh"), (saved.emissions_kg, "kgCO2e")):
            ends = interval(amount)
            line = value(amount, f"{unit} a {period}")
            scale.append(f"{line}\n  ({ends})" if ends else line)
    impact = ["time not known"]
    if change.time_ratio is not None:
        impact = _percents(change.time_ratio.minus(exact(1.0)), "time", change.time_verdict)
    savings = _percents(exact(1.0).minus(change.energy_ratio), "", change.energy_verdict)
    name = formatting.clipped(change.name, _LONGEST_NAME)
    return (name, *map("\n".join, (impact, savings, scale)))


def _percents(share: Amount, what: str, verdict: str) -> list[str]:
    """Return lines of text: a change in percent, and its interval if it is known.

    The last line is ``verdict`` if it is ``not resolved`` or ``not measured``.

    >>> _percents(Amount(value=0.012, low=-0.01, high=0.03), "time", "not resolved")
    ['+1.2 % time', '(-1.0 to +3.0)', 'not resolved']
    """
    assert share.value is not None, "a comparison without a ratio has no effect"
    lines = [f"{100.0 * share.value:+.1f} % {what}".rstrip()]
    if share.low is not None and share.high is not None:
        lines.append(f"({100.0 * share.low:+.1f} to {100.0 * share.high:+.1f})")
    return lines + [verdict] * verdict.startswith("not ")


def terms(fleet: Fleet) -> str:
    """Return the factors of the projection as one line of text."""
    currency = f" {fleet.currency}" if fleet.currency else ""
    price = "" if fleet.price_per_kwh is None else f", {fleet.price_per_kwh:g}{currency} per kWh"
    jobs = "1 job" if fleet.jobs_per_day == 1 else f"{formatting.grouped(fleet.jobs_per_day)} jobs"
    return (
        f"{jobs} per day, PUE {fleet.pue:g}, "
        f"scheduler overhead {_number(100.0 * fleet.scheduler_overhead)} %{price}"
    )


def notes(fleet: Fleet) -> list[str]:
    """Return notes on how the projection is computed, one text per note."""
    return [
        f"{_FACTORS}; a year has {DAYS_A_YEAR} days. Hours are those of the jobs only.",
        _INTERVALS,
        f"Grid: {fleet.intensity.source}.",
    ]
