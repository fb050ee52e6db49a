"""A projection in words: tables for a terminal, for markdown, and what must be known of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from energy_callbacks.report import words
from energy_callbacks.report.projection import (
    DAYS_A_YEAR,
    Amount,
    Fleet,
    JobUse,
    Projection,
    exact,
    one_job,
    project,
)

_DIGITS: Final = 4
_Row = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A job, or what is saved between two.

    Attributes:
        title: for people.
        job: what one takes.
    """

    title: str
    job: JobUse


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A line of the conclusion: what a change does to a job that is known.

    Attributes:
        name: of the change.
        before: what a job took.
        energy_ratio: after over before; ends are ``None`` where no interval is known.
        time_ratio: likewise; ``None`` where the time is not known.
        energy_verdict: ``lower``, ``higher`` or ``not resolved``.
    """

    name: str
    before: JobUse
    energy_ratio: Amount
    time_ratio: Amount | None
    energy_verdict: str
    time_verdict: str


def amount(found: Amount | None, unit: str) -> str:
    """A number with its interval.

    >>> amount(Amount(value=750.0, low=600.0, high=900.0), "kWh")
    '750 kWh (600 to 900)'
    >>> amount(Amount(value=None, low=20.0, high=1234567.0), "kg")
    '20 to 1 235 000 kg'
    >>> amount(Amount(value=750.0, low=None, high=None), "kWh")
    '750 kWh (interval not known)'
    """
    if found is None:
        return words.UNKNOWN
    if found.low is None or found.high is None:
        return f"{_number(found.value)} {unit} (interval not known)"
    ends = f"{_number(found.low)} to {_number(found.high)}"
    if found.value is None:
        return f"{ends} {unit}"
    if found.low == found.high:
        return f"{_number(found.value)} {unit}"
    return f"{_number(found.value)} {unit} ({ends})"


def _number(value: float | None) -> str:
    """Four digits that say something, in groups of thousands."""
    if value is None:
        return words.UNKNOWN
    rounded = float(f"{value:.{_DIGITS}g}")
    return words.grouped(rounded) if abs(rounded) >= 1000.0 else f"{rounded:g}"


PERIODS: Final = (("a job", 0.0), ("a day", 1.0), ("a year", float(DAYS_A_YEAR)))


def over(job: JobUse, fleet: Fleet, days: float) -> Projection:
    """Of one job where ``days`` is 0."""
    return project(job, fleet, days=days) if days else one_job(job, fleet)


def tables(columns: Sequence[Column], fleet: Fleet) -> Iterator[tuple[_Row, list[_Row]]]:
    """Head and rows for each period."""
    for period, days in PERIODS:
        found = [over(column.job, fleet, days) for column in columns]
        rows = [
            ("energy", *(amount(one.energy_kwh, "kWh") for one in found)),
            ("emissions", *(amount(one.emissions_kg, "kg") for one in found)),
        ]
        if fleet.price_per_kwh is not None:
            rows.append(("cost of electricity", *(_money(one) for one in found)))
        rows += [
            ("GPU-hours", *(amount(one.gpu_h, "h") for one in found)),
            ("hours of jobs", *(amount(one.wall_h, "h") for one in found)),
        ]
        yield (period, *(column.title for column in columns)), rows


def _money(found: Projection) -> str:
    return amount(found.money, "").replace(" (", "(").replace("(", " (").strip()


CONCLUSION: Final = (
    "improvement",
    "performance impact",
    "energy savings",
    "saved a day",
    "emissions saved a day",
    "saved a year",
)


def conclusion(changes: Sequence[Change], fleet: Fleet) -> list[_Row]:
    """A row for each change: improvement, performance impact, energy savings, saving at scale."""
    return [_concluded(change, fleet) for change in changes]


def _concluded(change: Change, fleet: Fleet) -> _Row:
    saving = change.before.saving(change.energy_ratio, change.time_ratio)
    day, year = project(saving, fleet), project(saving, fleet, days=DAYS_A_YEAR)
    return (
        change.name,
        "not known" if change.time_ratio is None else _changed(change.time_ratio, "time")
        + _unresolved(change.time_verdict),
        _saved(change.energy_ratio) + _unresolved(change.energy_verdict),
        amount(day.energy_kwh, "kWh"),
        amount(day.emissions_kg, "kg"),
        amount(year.energy_kwh, "kWh"),
    )


def _unresolved(verdict: str) -> str:
    return ", not resolved" if verdict == "not resolved" else ""


def _changed(ratio: Amount, what: str) -> str:
    """``+1.2 % time``, with its interval.

    >>> _changed(Amount(value=1.012, low=0.99, high=1.03), "time")
    '+1.2 % time (-1.0 to +3.0)'
    """
    return _percents(ratio.minus(exact(1.0)), what)


def _saved(ratio: Amount) -> str:
    return _percents(exact(1.0).minus(ratio), "").replace("% (", "% (")


def _percents(share: Amount, what: str) -> str:
    assert share.value is not None
    said = f"{100.0 * share.value:+.1f} % {what}".rstrip()
    if share.low is None or share.high is None:
        return said
    return f"{said} ({100.0 * share.low:+.1f} to {100.0 * share.high:+.1f})"


def terms(fleet: Fleet) -> str:
    """What was multiplied with, in a line."""
    jobs = words.grouped(fleet.jobs_per_day)
    price = "" if fleet.price_per_kwh is None else f", {fleet.price_per_kwh:g} per kWh"
    return (
        f"{jobs} jobs a day, PUE {fleet.pue:g}, scheduler overhead "
        f"{words.percent(fleet.scheduler_overhead)}{price}; a year has {DAYS_A_YEAR} days"
    )


def notes(fleet: Fleet) -> list[str]:
    """How the figures came about."""
    return [
        "Day = jobs x energy of a job x PUE x (1 + scheduler overhead). GPU-hours and hours are "
        "those of the jobs alone.",
        "In brackets are 95 % intervals. The error of a job is multiplied as it is: what sensors "
        "and models are wrong by is the same in every job and does not average out, however many "
        "there are. How much jobs differ from one another is not known from one.",
        f"Grid: {fleet.intensity.source}.",
    ]


def text(head: _Row, rows: Sequence[_Row]) -> list[str]:
    """A table in columns."""
    clean = [[words.one_line(cell) for cell in row] for row in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*clean, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in clean
    ]


def markdown(head: _Row, rows: Sequence[_Row]) -> list[str]:
    """The same for pull requests and wikis."""
    lines = [f"| {' | '.join(map(_escaped, row))} |" for row in (head, *rows)]
    return [lines[0], "|---" * len(head) + "|", *lines[1:]]


def _escaped(cell: str) -> str:
    """A cell of a table: nothing in it ends the cell, begins HTML or a link."""
    clean = words.one_line(cell).replace("&", "&amp;").replace("<", "&lt;")
    for character in "\\|`*_[]":
        clean = clean.replace(character, f"\\{character}")
    return clean
