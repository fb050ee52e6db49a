"""Memory over time: of the devices, of the framework's allocator on them, and of the host."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from energy_callbacks.core.units import gibibytes
from energy_callbacks.report.charts import metric_plot
from energy_callbacks.report.charts.palette import BLUES, INK, ORANGES
from energy_callbacks.report.charts.plots import style, time_unit
from energy_callbacks.report.collect.rows import Array
from energy_callbacks.report.model.models import Series
from energy_callbacks.report.model.schema import EnergyReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

# A point for each four of the screen: fewer than the power has, because nothing is added up here.
_POINTS_PER_INCH = 24.0
# Kind of device: what its memory is called, and how it is drawn.
_LINES: dict[str, tuple[str, dict[str, Any]]] = {
    "gpu": ("device, in use", {"color": BLUES[0]}),
    "allocator": ("allocated", {"color": BLUES[1]}),
    "process": ("host, resident", {"color": ORANGES[0]}),
}
_PEAK = ("allocated, peak", {"color": INK, "ls": (0, (4, 3)), "lw": 1.0})


def memory_over_time(report: EnergyReport, *, width_in: float = 9.4) -> "Canvas | None":
    """The highest of all devices, allocators and ranks; if there is room, a metric beside it.

    Args:
        report: what to draw.
        width_in: of the figure, in inches; below 6 there is no room.

    Returns:
        The figure; ``None`` if no memory is known.
    """
    lines = _lines(report, most=round(_POINTS_PER_INCH * width_in))
    if not lines:
        return None
    from matplotlib.figure import Figure as Canvas

    with style():
        canvas = Canvas(figsize=(width_in, 2.9), layout="constrained")
        beside = [] if width_in < 6.0 else metric_plot.families(report, "epoch")[:1]
        ratios = (2, 1) if beside else (1,)
        panels = canvas.subplots(1, len(ratios), width_ratios=ratios, squeeze=False).ravel()
        _draw(panels[0], lines, columns=2 if width_in < 6.0 else 4)
        for axes, family in zip(panels[1:], beside, strict=True):
            metric_plot.draw(axes, family, "epoch")
    return canvas


def _lines(report: EnergyReport, most: int) -> list[tuple[str, dict[str, Any], Array, Array]]:
    """Label, look, times and GiB of each line."""
    kinds = {(device.host, device.key): device.kind for device in report.devices}
    found = []
    for kind, (name, look) in _LINES.items():
        curves = [one for one in report.series if kinds.get((one.host, one.key)) == kind]
        told = [(one.t_s, one.memory_bytes) for one in curves]
        found.append((_of_several(name, kind, curves), look, *_highest(told, most)))
    peaks = [(one.t_s, one.peak_allocated_bytes) for one in report.series]
    found.append((*_PEAK, *_highest([(t_s, values) for t_s, values in peaks if values], most)))
    return [line for line in found if len(line[2])]


def _of_several(name: str, kind: str, curves: Sequence[Series]) -> str:
    count = len(curves)
    return f"{name} (highest of {count})" if kind == "gpu" and count > 1 else name


def _highest(
    curves: Sequence[tuple[Sequence[float], Sequence[float | None]]], most: int
) -> tuple[Array, Array]:
    """Of all curves together, in time order, in at most this many points."""
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


def _draw(axes: "Axes", lines: Sequence[tuple[str, Any, Array, Array]], *, columns: int) -> None:
    scale_s, unit = time_unit(max(float(t_s[-1]) for _, _, t_s, _ in lines))
    for name, look, t_s, values in lines:
        axes.plot(t_s / scale_s, values, **{"lw": 1.4, "label": name} | look)
    axes.set_ylim(bottom=0.0)
    axes.set_xlim(left=0.0)
    axes.set_ylabel("memory (GiB)")
    axes.set_xlabel(f"time measured ({unit})")
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=columns, borderaxespad=0.1)
