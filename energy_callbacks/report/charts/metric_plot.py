"""Draws the user's metrics, in training and validation, over energy or over epochs."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from energy_callbacks.report.charts.drawing import (
    NARROW_IN,
    add_legend,
    energy_unit,
    panels,
    short_name,
)
from energy_callbacks.report.charts.palette import INK, phase_colours
from energy_callbacks.report.model.metrics import Metric
from energy_callbacks.report.model.schema import EnergyReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

Over = Literal["energy", "epoch"]

# Maximum number of points of a line that is drawn with markers. More markers would overlap.
_MARKED = 40
# The y axis is logarithmic if the highest value divided by the lowest one is larger than this.
_DECADES = 50.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricPair:
    """A metric in training and in validation; one of them is ``None`` if it was not logged."""

    training: Metric | None
    validation: Metric | None

    @property
    def name(self) -> str:
        """Name of the metric without the words for training, validation and aggregation."""
        return next(one.stem or one.name for one in (self.validation, self.training) if one)

    @property
    def rank(self) -> tuple[bool, int]:
        """Key for a descending sort: pairs with validation first, then pairs with a direction.

        The direction states whether lower or higher values of the metric are better.
        """
        metric = self.validation or self.training
        directions = (None, "higher", "lower")
        return self.validation is not None, directions.index(metric and metric.direction)

    def lines(self, over: Over) -> list[tuple[str, list[float], list[float]]]:
        """Return the lines that have two or more points: name, x values and y values.

        Args:
            over: quantity of the x axis: ``energy`` (J) or ``epoch``. Points without a known x
                value are omitted.
        """
        lines = []
        for name, metric in (("train", self.training), ("validation", self.validation)):
            if metric is not None:
                places = metric.epoch if over == "epoch" else metric.energy_j
                points = zip(places, metric.value, strict=True)
                known = [(x, y) for x, y in points if x is not None]
                if len(known) > 1:
                    lines.append((name, [x for x, _ in known], [y for _, y in known]))
        return lines


def metric_pairs(report: EnergyReport, over: Over) -> list[MetricPair]:
    """Return the pairs to draw, the most informative first.

    A pair is informative if the metric was logged in validation, or if it is known whether lower or
    higher values of the metric are better. If any informative pair has a line, all informative
    pairs with a line are returned, otherwise only the first pair with a line.

    Args:
        report: the report.
        over: quantity of the x axis.
    """
    by_stem: dict[str, list[Metric]] = defaultdict(list)
    for metric in report.metrics:
        by_stem[metric.stem or metric.name].append(metric)
    pairs = [
        MetricPair(
            training=_longest([one for one in metrics if not one.is_validation]),
            validation=_longest([one for one in metrics if one.is_validation]),
        )
        for metrics in by_stem.values()
    ]
    drawn = [pair for pair in pairs if pair.lines(over)]
    informative = [pair for pair in drawn if pair.rank > (False, 0)]
    return sorted(informative or drawn[:1], key=lambda pair: pair.rank, reverse=True)


def _longest(metrics: Sequence[Metric]) -> Metric | None:
    """Return the metric with the most points; among equals, one with ``epoch`` in its name."""
    return max(metrics, key=lambda one: (len(one.t_s), "epoch" in one.name), default=None)


def metric_over_energy(report: EnergyReport, *, width_in: float = 9.4) -> "Canvas | None":
    """Draw the two most informative metrics over the energy that was used up to each value.

    Args:
        report: the report.
        width_in: width of the figure in inches; a narrow figure has its panels below each other.

    Returns:
        The figure; ``None`` if no metric has two values for which the energy is known.
    """
    shown = metric_pairs(report, "energy")[:2]
    if not shown:
        return None
    is_narrow = width_in < NARROW_IN
    height_in = 0.5 + 2.3 * len(shown) if is_narrow else 2.9
    rows, columns = (len(shown), 1) if is_narrow else (1, len(shown))
    with panels(width_in, height_in, rows, columns) as (canvas, drawn):
        for axes, pair in zip(drawn, shown, strict=True):
            draw(axes, pair, "energy")
        # Of panels below each other, only the lowest has a label on its x axis.
        for axes in drawn[:-1] if is_narrow else ():
            axes.set_xlabel("")
    return canvas


def draw(axes: "Axes", pair: MetricPair, over: Over) -> None:
    """Draw the lines of a pair into a panel, with a ring around the best validation value.

    There is no ring if it is not known whether lower or higher values are better.

    Args:
        axes: the panel.
        pair: the metric in training and validation.
        over: quantity of the x axis.
    """
    lines = pair.lines(over)
    scale, label = 1.0, "epoch"
    if over == "energy":
        scale, unit = energy_unit(max(max(x) for _, x, _ in lines))
        label = f"energy used ({unit})"
    for name, places, y in lines:
        _draw_line(axes, pair, name, [place / scale for place in places], y)
    values = [value for _, _, y in lines for value in y]
    if min(values) > 0.0 and max(values) > _DECADES * min(values):
        axes.set_yscale("log")
        # Matplotlib's default labels of a logarithmic axis are TeX. The style of all charts has TeX
        # turned off, because the user's names may contain ``$``.
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("")
    axes.set_ylabel(short_name(pair.name))
    axes.set_xlabel(label)
    add_legend(axes, 3, columnspacing=1.4)


def _draw_line(
    axes: "Axes", pair: MetricPair, name: str, x: Sequence[float], y: Sequence[float]
) -> None:
    is_validation = name == "validation"
    marker = ("s" if is_validation else "o") if len(x) <= _MARKED else None
    # Lines without markers are distinguished by dashes, for readers who cannot see the colours.
    dashes = "--" if marker is None and is_validation else "-"
    colour = phase_colours((name,))[name]
    axes.plot(x, y, dashes, color=colour, marker=marker, ms=3.5, lw=1.4, label=name)
    direction = pair.validation.direction if is_validation and pair.validation else None
    if direction is not None:
        best = y.index(min(y) if direction == "lower" else max(y))
        ring: dict[str, Any] = {"ms": 9.0, "mfc": "none", "mec": INK, "mew": 1.2, "ls": "none"}
        axes.plot(x[best], y[best], "o", label="best", **ring)
