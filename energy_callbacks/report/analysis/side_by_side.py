"""Two runs side by side, with the errors of their sensors."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from energy_callbacks.accounting.metrics.energy_sums import interval_j
from energy_callbacks.core import formatting
from energy_callbacks.report.model import figure_format
from energy_callbacks.report.model.models import Figure, Ratio
from energy_callbacks.report.model.schema import EnergyReport

_ONE_EACH = (
    "One run a side: the intervals are those of the sensors. How much two runs\n"
    "of the same differ is not known from them."
)
_Interval = tuple[float, float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One quantity: how each run has it, and in numbers with the ends of their intervals."""

    name: str
    old: str
    new: str
    old_is: _Interval | None
    new_is: _Interval | None


def render(old: EnergyReport, new: EnergyReport) -> str:
    """A table in plain text: the older run, the newer one, and the newer over the older."""
    lines = [
        f"{'':20}{'before':>14}{'now':>14}   now / before",
        *(f"{row.name:20}{row.old:>14}{row.new:>14}   {_ratio(row)}" for row in _rows(old, new)),
        _ONE_EACH,
    ]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _rows(old: EnergyReport, new: EnergyReport) -> Iterator[_Row]:
    yield _exact("time", old.run.duration_s, new.run.duration_s, formatting.duration)
    for scope in ("gpu", "host", "total"):
        pair = [getattr(one.energy, scope) for one in (old, new)]
        if any(figure.energy_j is not None for figure in pair):
            yield _of_figures(f"energy, {scope}", *pair)
    for unit in ("step", "sample", "token"):
        pair = [getattr(one.efficiency.total, f"j_per_{unit}") for one in (old, new)]
        if any(pair):
            yield _of_ratios(f"energy per {unit}", *pair)
    speed, speed_now = (one.throughput.samples_per_s for one in (old, new))
    if speed or speed_now:
        yield _exact("samples per second", speed, speed_now, formatting.significant)
    for name, field in (
        ("peak card memory", "device_used_peak_bytes"),
        ("peak allocated", "peak_allocated_bytes"),
        ("peak host memory", "host_rss_peak_bytes"),
    ):
        size, size_now = (getattr(one.memory, field) for one in (old, new))
        if size or size_now:
            yield _exact(name, size, size_now, formatting.size)


def _exact(name: str, old: float | None, new: float | None, say: Callable[[float], str]) -> _Row:
    def interval(value: float | None) -> _Interval | None:
        return None if not value else (value, value, value)

    told = [formatting.UNKNOWN if value is None else say(value) for value in (old, new)]
    return _Row(name=name, old=told[0], new=told[1], old_is=interval(old), new_is=interval(new))


def _of_figures(name: str, old: Figure, new: Figure) -> _Row:
    return _Row(
        name=name,
        old=figure_format.figure(old),
        new=figure_format.figure(new),
        old_is=interval_j(old),
        new_is=interval_j(new),
    )


def _of_ratios(name: str, old: Ratio | None, new: Ratio | None) -> _Row:
    ends = [None if one is None else (one.value_j, one.low_j, one.high_j) for one in (old, new)]
    return _Row(
        name=name,
        old=figure_format.ratio(old),
        new=figure_format.ratio(new),
        old_is=ends[0],
        new_is=ends[1],
    )


def _ratio(row: _Row) -> str:
    """With the ends that both intervals leave; nothing if one is not known."""
    if row.old_is is None or row.new_is is None or not row.old_is[0]:
        return "-"
    (old, old_low, old_high), (new, new_low, new_high) = row.old_is, row.new_is
    said = formatting.significant(new / old)
    if old_low == old_high and new_low == new_high:
        return said
    high = formatting.significant(new_high / old_low) if old_low > 0.0 else "any"
    return f"{said} ({formatting.significant(new_low / old_high)} to {high})"
