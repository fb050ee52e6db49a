"""A projection as tables for a terminal and markdown, with notes."""

from collections.abc import Callable, Iterator, Sequence
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

_DIGITS, _LONGEST_NAME = 4, 20
_Row = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectionColumn:
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
        energy_ratio: after over before; ends are ``None`` if no interval is known.
        time_ratio: ratio of the times; ``None`` if not known.
        energy_verdict: ``lower``, ``higher`` or ``not resolved``.
    """

    name: str
    before: JobUse
    energy_ratio: Amount
    time_ratio: Amount | None
    energy_verdict: str
    time_verdict: str


def value(found: Amount | None, unit: str) -> str:
    """The number; if it is not known, its interval.

    >>> value(Amount(value=750.0, low=600.0, high=900.0), "kWh")
    '750 kWh'
    >>> value(Amount(value=None, low=20.0, high=1234567.0), "kg")
    '20 to 1 235 000 kg'
    """
    if found is None:
        return formatting.UNKNOWN
    told = _ends(found) if found.value is None else _number(found.value)
    return f"{told} {unit}".rstrip()


def interval(found: Amount | None) -> str:
    """Both ends, in the unit of the value; nothing for a number that is exact.

    >>> interval(Amount(value=750.0, low=600.0, high=900.0))
    '600 to 900'
    >>> interval(Amount(value=750.0, low=None, high=None))
    'interval not known'
    """
    if found is None or found.value is None or found.low == found.high is not None:
        return ""
    return _ends(found)


def _ends(found: Amount) -> str:
    if found.low is None or found.high is None:
        return "interval not known"
    return f"{_number(found.low)} to {_number(found.high)}"


def _number(value: float) -> str:
    """Four digits that say something, in groups of thousands."""
    rounded = float(f"{value:.{_DIGITS}g}")
    return formatting.grouped(rounded) if abs(rounded) >= 1000.0 else f"{rounded:g}"


PERIODS: Final = (("a job", 0.0), ("a day", 1.0), ("a year", float(DAYS_A_YEAR)))


def over(job: JobUse, fleet: Fleet, days: float) -> Projection:
    """Of one job if ``days`` is 0."""
    return project(job, fleet, days=days) if days else one_job(job, fleet)


def tables(columns: Sequence[ProjectionColumn], fleet: Fleet) -> Iterator[tuple[_Row, list[_Row]]]:
    """Head and rows for each period: a row for each quantity of each column."""
    for period, days in PERIODS:
        found = [(column.title, over(column.job, fleet, days)) for column in columns]
        rows: list[_Row] = []
        for quantity in _QUANTITIES[: None if fleet.price_per_kwh is not None else -1]:
            for i, (title, one) in enumerate(found):
                amount, unit = quantity.of(one), quantity.unit
                if not days and quantity.small:
                    amount, unit = amount and amount.times(1e3), quantity.small
                name = "" if i else quantity.title
                rows.append((name, _clipped(title), value(amount, unit), interval(amount)))
        yield (period, "", "", "95 % interval"), rows


@dataclass(frozen=True, slots=True, kw_only=True)
class _Quantity:
    """A row; ``small`` is a thousandth of its unit, for one job."""

    title: str
    of: Callable[[Projection], Amount | None]
    unit: str
    small: str = ""


_QUANTITIES: Final = (
    _Quantity(title="energy", of=lambda one: one.energy_kwh, unit="kWh", small="Wh"),
    _Quantity(title="emissions", of=lambda one: one.emissions_kg, unit="kgCO2e", small="gCO2e"),
    _Quantity(title="GPU-hours", of=lambda one: one.gpu_h, unit="h"),
    _Quantity(title="hours of jobs", of=lambda one: one.wall_h, unit="h"),
    _Quantity(title="cost of electricity", of=lambda one: one.money, unit=""),
)

CONCLUSION: Final = ("improvement", "performance impact", "energy savings", "saving at scale")


def conclusion(changes: Sequence[Change], fleet: Fleet) -> list[_Row]:
    """A row for each change; a cell has a line for each thing that it says."""
    return [_concluded(change, fleet) for change in changes]


def _concluded(change: Change, fleet: Fleet) -> _Row:
    saving = change.before.saving(change.energy_ratio, change.time_ratio)
    day, year = project(saving, fleet), project(saving, fleet, days=DAYS_A_YEAR)
    scale = [
        (value(amount, f"{unit} a {period}"), interval(amount))
        for amount, unit, period in (
            (day.energy_kwh, "kWh", "day"),
            (day.emissions_kg, "kgCO2e", "day"),
            (year.energy_kwh, "kWh", "year"),
            (year.emissions_kg, "kgCO2e", "year"),
        )
    ]
    impact = ["time not known"]
    if change.time_ratio is not None:
        impact = _percents(change.time_ratio.minus(exact(1.0)), "time", change.time_verdict)
    return (
        _clipped(change.name),
        "\n".join(impact),
        "\n".join(_percents(exact(1.0).minus(change.energy_ratio), "", change.energy_verdict)),
        "\n".join(f"{told}\n  ({ends})" if ends else told for told, ends in scale),
    )


def _percents(share: Amount, what: str, verdict: str) -> list[str]:
    """Change, interval and whether it is one, a line each.

    >>> _percents(Amount(value=0.012, low=-0.01, high=0.03), "time", "not resolved")
    ['+1.2 % time', '(-1.0 to +3.0)', 'not resolved']
    """
    assert share.value is not None, "a comparison without a ratio has no effect"
    said = [f"{100.0 * share.value:+.1f} % {what}".rstrip()]
    if share.low is not None and share.high is not None:
        said.append(f"({100.0 * share.low:+.1f} to {100.0 * share.high:+.1f})")
    return said + ["not resolved"] * (verdict == "not resolved")


def _clipped(name: str) -> str:
    clean = formatting.one_line(name)
    return clean if len(clean) <= _LONGEST_NAME else f"{clean[: _LONGEST_NAME - 1]}…"


def terms(fleet: Fleet) -> str:
    """The factors, in a line."""
    price = "" if fleet.price_per_kwh is None else f", {fleet.price_per_kwh:g} per kWh"
    return (
        f"{formatting.grouped(fleet.jobs_per_day)} jobs a day, PUE {fleet.pue:g}, scheduler "
        "overhead "
        f"{formatting.percent(fleet.scheduler_overhead)}{price}"
    )


def notes(fleet: Fleet) -> list[str]:
    """How the figures came about."""
    return [
        (
            "Energy of a day = jobs x energy of a job x PUE x (1 + scheduler overhead); a year has "
            f"{DAYS_A_YEAR} days. Hours are those of the jobs alone."
        ),
        (
            "Intervals are of 95 %. The error of a job is multiplied as it is: what sensors and "
            "models are wrong by is the same in every job and does not average out, however many "
            "there are. How much jobs differ from one another is not known from one."
        ),
        f"Grid: {fleet.intensity.source}.",
    ]
