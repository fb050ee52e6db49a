"""Compares two runs in a table, with intervals from the errors of sensors and models."""

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any, Final, NamedTuple

from energy_callbacks.accounting.metrics.energy_sums import interval_j
from energy_callbacks.core import formatting
from energy_callbacks.report.model import figure_format
from energy_callbacks.report.model.amounts import Figure, Ratio
from energy_callbacks.report.model.schema import EnergyReport

_ONE_EACH = (
    "The intervals contain the errors of sensors and models. One run on each side\n"
    "does not show how much repeated runs differ."
)


class _Side(NamedTuple):
    """A quantity of one run.

    Attributes:
        is_known: whether the value is known; a quantity that is known for neither run is not shown.
        text: the value as text.
        interval: value, lower end and upper end of the interval; ``None`` if not known.
    """

    is_known: bool
    text: str
    interval: tuple[float, float, float] | None


def _exact(shown: Callable[[float], str]) -> Callable[[float | None], _Side]:
    """Return a function that converts an exact value to a ``_Side``; 0 counts as not known.

    Args:
        shown: function that returns a value as text.
    """

    def side(value: float | None) -> _Side:
        text = formatting.UNKNOWN if value is None else shown(value)
        return _Side(bool(value), text, (value, value, value) if value else None)

    return side


def _of_figure(figure: Figure) -> _Side:
    return _Side(figure.energy_j is not None, figure_format.figure(figure), interval_j(figure))


def _of_ratio(ratio: Ratio | None) -> _Side:
    ends = None if ratio is None else (ratio.value_j, ratio.low_j, ratio.high_j)
    return _Side(ends is not None, figure_format.ratio(ratio), ends)


# Name, field of the report, and the function that converts the value of the field to a ``_Side``.
_QUANTITIES: Final[tuple[tuple[str, str, Callable[[Any], _Side]], ...]] = (
    ("time", "run.duration_s", _exact(formatting.duration)),
    ("energy, gpu", "energy.gpu", _of_figure),
    ("energy, host", "energy.host", _of_figure),
    ("energy, total", "energy.total", _of_figure),
    ("energy per step", "efficiency.total.j_per_step", _of_ratio),
    ("energy per sample", "efficiency.total.j_per_sample", _of_ratio),
    ("energy per token", "efficiency.total.j_per_token", _of_ratio),
    ("samples per second", "throughput.samples_per_s", _exact(formatting.significant)),
    ("peak card memory", "memory.device_used_peak_bytes", _exact(formatting.size)),
    ("peak allocated", "memory.peak_allocated_bytes", _exact(formatting.size)),
    ("peak host memory", "memory.host_rss_peak_bytes", _exact(formatting.size)),
)


def render(old: EnergyReport, new: EnergyReport) -> str:
    """Return a table in plain text: the older run, the newer run, and newer divided by older."""
    lines = [f"{'':20}{'before':>14}{'now':>14}   now / before", *_rows(old, new), _ONE_EACH]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _rows(old: EnergyReport, new: EnergyReport) -> Iterator[str]:
    for name, field, side in _QUANTITIES:
        before, now = (side(attrgetter(field)(report)) for report in (old, new))
        if before.is_known or now.is_known:
            yield f"{name:20}{before.text:>14}{now.text:>14}   {_ratio(before, now)}"


def _ratio(before: _Side, now: _Side) -> str:
    """Return the newer value divided by the older one as text, with the interval of the ratio.

    Returns ``-`` if an interval is not known or the older value is 0. The upper end of the ratio is
    ``any`` if the interval of the older value begins at 0.
    """
    if before.interval is None or now.interval is None or not before.interval[0]:
        return "-"
    (old, old_low, old_high), (new, new_low, new_high) = before.interval, now.interval
    ratio = formatting.significant(new / old)
    if old_low == old_high and new_low == new_high:
        return ratio
    high = formatting.significant(new_high / old_low) if old_low > 0.0 else "any"
    return f"{ratio} ({formatting.significant(new_low / old_high)} to {high})"
