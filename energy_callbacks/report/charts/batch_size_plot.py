"""The chart of a batch-size search: throughput, energy per sample and memory by batch size."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from energy_callbacks.core.units import gibibytes
from energy_callbacks.report.charts.drawing import NARROW_IN, add_legend, panels
from energy_callbacks.report.charts.palette import BLUES, INK, ORANGES
from energy_callbacks.report.model.batch_sizes import BatchSizeCurve, BatchSizePoint

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas


class BatchSizePanel(NamedTuple):
    """One panel of the chart.

    Attributes:
        title: label of the y axis.
        colour: colour of the curve.
        measure: function of a trial that returns a value and the half-width of its 95 % interval,
            or ``None`` if the panel leaves the trial out.
    """

    title: str
    colour: str
    measure: Callable[[BatchSizePoint], tuple[float, float] | None]


def _samples_per_s(point: BatchSizePoint) -> tuple[float, float] | None:
    speed = point.samples_per_s
    return None if speed is None else (speed, point.samples_per_s_error or 0.0)


def _j_per_sample(point: BatchSizePoint) -> tuple[float, float] | None:
    ratio = point.j_per_sample
    if ratio is None or not ratio.is_resolved:
        return None
    return ratio.value_j, ratio.high_j - ratio.value_j


def _peak_gib(point: BatchSizePoint) -> tuple[float, float] | None:
    return None if point.peak_bytes is None else (gibibytes(point.peak_bytes), 0.0)


PANELS: Final = (
    BatchSizePanel("samples/s", BLUES[0], _samples_per_s),
    BatchSizePanel("J/sample", ORANGES[2], _j_per_sample),
    BatchSizePanel("peak memory (GiB)", "#009e73", _peak_gib),
)
_SCOPES: Final = {"gpu": "GPU", "host": "host"}


def points_that_ran(curve: BatchSizeCurve) -> list[BatchSizePoint]:
    """Return the trials whose batch size fits in memory, smallest size first."""
    return sorted((point for point in curve.points if point.fits), key=lambda point: point.size)


def columns_of(
    panel: BatchSizePanel, points: Sequence[BatchSizePoint]
) -> tuple[list[int], list[float], list[float]]:
    """Return batch sizes, values and errors of the trials that the panel shows."""
    known = [(point.size, *pair) for point in points if (pair := panel.measure(point)) is not None]
    return [row[0] for row in known], [row[1] for row in known], [row[2] for row in known]


def batch_size_figure(curve: BatchSizeCurve, *, width_in: float = 9.4) -> "Canvas | None":
    """Draw three panels, with a line at the chosen size and a cross at each size that did not fit.

    A dashed line in the third panel shows the memory of the device, if it is known.

    Args:
        curve: result of the search.
        width_in: width of the figure in inches; a narrow figure has its panels below each other.

    Returns:
        The figure; ``None`` if no batch size fits in memory.
    """
    ran = points_that_ran(curve)
    if not ran:
        return None
    is_narrow = width_in < NARROW_IN
    height_in, rows, columns = (6.6, 3, 1) if is_narrow else (2.9, 1, 3)
    with panels(width_in, height_in, rows, columns, sharex=is_narrow) as (canvas, drawn):
        for axes, panel in zip(drawn, PANELS, strict=True):
            sizes, values, errors = columns_of(panel, ran)
            axes.errorbar(
                sizes,
                values,
                yerr=errors,
                color=panel.colour,
                marker="o",
                ms=3.5,
                lw=1.1,
                capsize=2.5,
            )
            axes.set_ylabel(panel.title)
        measured = [point for point in ran if _j_per_sample(point) is not None]
        scopes = " and ".join(sorted({_SCOPES[point.scope] for point in measured}))
        drawn[1].set_ylabel(f"{scopes} J/sample" if measured else "J/sample not known")
        if curve.memory_bytes is not None:
            drawn[2].axhline(gibibytes(curve.memory_bytes), color=INK, ls=(0, (4, 3)), lw=0.9)
        for axes in drawn:
            _mark(axes, curve)
        for axes in drawn[2:] if is_narrow else drawn:
            axes.set_xlabel("batch size")
        add_legend(drawn[0], 2)
    return canvas


def _mark(axes: "Axes", curve: BatchSizeCurve) -> None:
    """Set up the axes of a panel, and mark the chosen size and the sizes that did not fit."""
    axes.set_ylim(bottom=0.0)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda size, _: f"{size:g}")
    if curve.size is not None:
        axes.axvline(curve.size, color=INK, lw=0.9, zorder=0.5, label=f"chosen: {curve.size}")
    refused = sorted({point.size for point in curve.points if not point.fits})
    if refused:
        heights, place = [0.04] * len(refused), axes.get_xaxis_transform()
        axes.plot(refused, heights, "x", color=INK, ms=5.0, label="does not fit", transform=place)
