"""The chart of memory over time: of the GPUs, of the framework's allocator and of processes."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from energy_callbacks.core.units import gibibytes
from energy_callbacks.report.charts import metric_plot
from energy_callbacks.report.charts.drawing import NARROW_IN, add_legend, panels, time_unit
from energy_callbacks.report.charts.palette import BLUES, INK, ORANGES
from energy_callbacks.report.collect.rows import Array
from energy_callbacks.report.model.schema import EnergyReport

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

# Maximum number of points of a line per inch: one for every four pixels of a screen with 96 pixels
# per inch. For the stacked curves of power, the maximum is ``plots._BINS_PER_INCH``.
_POINTS_PER_INCH = 24.0
# Label and appearance of the line for each kind of device.
_LINES: dict[str, tuple[str, dict[str, Any]]] = {
    "gpu": ("GPU, in use", {"color": BLUES[0], "lw": 1.4}),
    "allocator": ("allocated", {"color": BLUES[1], "lw": 1.4}),
    "process": ("host, resident", {"color": ORANGES[0], "lw": 1.4}),
}
_PEAK = ("allocated, peak", {"color": INK, "ls": (0, (4, 3)), "lw": 1.0})


class _Line(NamedTuple):
    label: str
    look: dict[str, Any]
    t_s: Array
    memory_gib: Array


def memory_over_time(report: EnergyReport, *, width_in: float = 9.4) -> "Canvas | None":
    """Draw memory over time, with one line for each kind of device (GPU, allocator, process).

    A line shows the highest memory of all devices of its kind. Another line shows the highest peak
    of all allocators. A second panel shows a metric of the user over the epochs, if there is one.

    Args:
        report: the report.
        width_in: width of the figure in inches; a narrow figure has no second panel.

    Returns:
        The figure; ``None`` if no memory is known.
    """
    lines = _lines(report, most=round(_POINTS_PER_INCH * width_in))
    if not lines:
        return None
    is_narrow = width_in < NARROW_IN
    pairs = [] if is_narrow else metric_plot.metric_pairs(report, "epoch")[:1]
    ratios = (2, 1) if pairs else (1,)
    scale_s, unit = time_unit(max(float(line.t_s[-1]) for line in lines))
    with panels(width_in, 2.9, 1, len(ratios), width_ratios=ratios) as (canvas, [axes, *beside]):
        for line in lines:
            axes.plot(line.t_s / scale_s, line.memory_gib, label=line.label, **line.look)
        axes.set_ylim(bottom=0.0)
        axes.set_xlim(left=0.0)
        axes.set_ylabel("memory (GiB)")
        axes.set_xlabel(f"time measured ({unit})")
        add_legend(axes, 2 if is_narrow else 4)
        for metric_axes, pair in zip(beside, pairs, strict=True):
            metric_plot.draw(metric_axes, pair, "epoch")
    return canvas


def _lines(report: EnergyReport, most: int) -> list[_Line]:
    """Return the lines that have known values, each with at most ``most`` points."""
    kinds = {(device.host, device.key): device.kind for device in report.devices}
    lines = []
    for kind, (label, look) in _LINES.items():
        curves = [one for one in report.series if kinds.get((one.host, one.key)) == kind]
        of_several = f" (highest of {len(curves)})" if kind == "gpu" and len(curves) > 1 else ""
        points = _highest([(one.t_s, one.memory_bytes) for one in curves], most)
        lines.append(_Line(label + of_several, look, *points))
    peaks = [(one.t_s, one.peak_allocated_bytes) for one in report.series]
    points = _highest([(t_s, values) for t_s, values in peaks if values], most)
    return [line for line in (*lines, _Line(*_PEAK, *points)) if len(line.t_s)]


def _highest(
    curves: Sequence[tuple[Sequence[float], Sequence[float | None]]], most: int
) -> tuple[Array, Array]:
    """Combine curves of memory into one curve of their highest values.

    Args:
        curves: times (s) and values (bytes) of each curve.
        most: maximum number of points of the result.

    Returns:
        Times (s), and the highest value (GiB) of all curves since the previous time.
    """
    pairs = sorted(
        (at_s, gibibytes(value))
        for t_s, values in curves
        for at_s, value in zip(t_s, values, strict=True)
        if value is not None
    )
    table = np.asarray(pairs).reshape(-1, 2)
    size = max(len(curves), math.ceil(len(table) / most), 1)
    first = np.arange(0, len(table), size)
    if not len(first):
        return np.empty(0), np.empty(0)
    last = np.minimum(first + size, len(table)) - 1
    return table[last, 0], np.maximum.reduceat(table[:, 1], first)
