"""Draws the curves of all controllers on one task: power and throughput over time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from energy_callbacks.compare.plots import COLOURS
from energy_callbacks.inference.bench.rows import Row
from energy_callbacks.report.charts.drawing import Chart, add_legend, panels
from energy_callbacks.report.charts.palette import INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

_NARROW_IN: Final = 6.0
_DASHES: Final = ("-", (0, (5, 1.5)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """The rows of all controllers on a task.

    Attributes:
        rows: rows of the first seed, by algorithm; at least one row each.
        best_per_s: samples per second of the best operating point by cap in W; caps without a
            known one are missing.
    """

    rows: Mapping[str, Sequence[Row]]
    best_per_s: Mapping[float, float]


def power(curves: Curves, width_in: float) -> "Canvas":
    """Draw the mean power of each window, and the cap."""
    with panels(width_in, 3.4) as (canvas, [axes]):
        _draw(axes, curves, "power_mean_w")
        rows = _longest(curves)
        edges = [*(row.start_s for row in rows), rows[-1].end_s]
        caps = [row.cap_w for row in rows]
        axes.stairs(caps, edges, baseline=None, color=INK, lw=1.2, ls=(0, (4, 2)), label="cap")
        _finish(axes, "power (W)", width_in)
    return canvas


def throughput(curves: Curves, width_in: float) -> "Canvas":
    """Draw the throughput of each window, and that of the best operating point if it is known."""
    with panels(width_in, 3.4) as (canvas, [axes]):
        _draw(axes, curves, "throughput_per_s")
        rows = _longest(curves)
        if all(row.cap_w in curves.best_per_s for row in rows):
            edges = [*(row.start_s for row in rows), rows[-1].end_s]
            values = [curves.best_per_s[row.cap_w] for row in rows]
            dashes = (0, (4, 2))
            axes.stairs(values, edges, baseline=None, color=INK, lw=1.2, ls=dashes, label="optimum")
        _finish(axes, "samples/s", width_in)
        axes.set_ylim(bottom=0.0)
    return canvas


def _draw(axes: "Axes", curves: Curves, name: str) -> None:
    for index, (algorithm, rows) in enumerate(curves.rows.items()):
        times_s = [(row.start_s + row.end_s) / 2.0 for row in rows]
        axes.plot(
            times_s,
            [getattr(row, name) for row in rows],
            color=COLOURS[index % len(COLOURS)],
            ls=_DASHES[index // len(COLOURS) % len(_DASHES)],
            lw=1.2,
            label=algorithm,
        )


def _finish(axes: "Axes", label: str, width_in: float) -> None:
    axes.set_xlabel("time (s)")
    axes.set_ylabel(label)
    add_legend(axes, 3 if width_in < _NARROW_IN else 8)


def _longest(curves: Curves) -> Sequence[Row]:
    return max(curves.rows.values(), key=len)


CHARTS: Final = (
    Chart(name="power", title="Power over time", draw=power),
    Chart(name="throughput", title="Throughput over time", draw=throughput),
)
