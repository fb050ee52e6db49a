"""Computes the curves of a run that the pages of comparisons show."""

from collections.abc import Sequence
from typing import Final, TypeVar

import numpy as np

from energy_callbacks.compare.model import RunCurve
from energy_callbacks.report.charts.bands import bands
from energy_callbacks.report.model.metrics import Metric
from energy_callbacks.report.model.schema import EnergyReport

# Maximum number of points of each curve in ``RunCurve``, except the curve of the metric.
_POINTS: Final = 120

_T = TypeVar("_T")


def run_curve(report: EnergyReport, metric: Metric | None) -> RunCurve:
    """Return the curves of a run.

    Args:
        report: report of the run.
        metric: the compared metric; ``None`` if there is none, or the run does not have it.
    """
    power = bands(report, _POINTS)
    edges_s = power[0].edges_s if power else ()
    done = report.progress
    points = () if metric is None else zip(metric.energy_j, metric.value, strict=True)
    known = [(energy_j, value) for energy_j, value in points if energy_j is not None]
    return RunCurve(
        t_s=_rounded(edges_s[1:]),
        power_w=_rounded([sum(one) for one in zip(*(b.power_w for b in power), strict=True)]),
        memory_bytes=_memory(report, edges_s),
        step=_thinned(() if done is None else done.step),
        step_energy_j=_thinned(() if done is None else done.energy_j),
        metric_energy_j=_rounded([energy_j for energy_j, _ in known]),
        metric=tuple(value for _, value in known),
    )


def _memory(report: EnergyReport, edges_s: Sequence[float]) -> tuple[float | None, ...]:
    """Return the peak memory in each time bin, in bytes; ``None`` for a bin without readings.

    The memory is that of the GPU with the highest peak, or of the process if the memory of no GPU
    is known. The result is empty if neither memory is known, or if there are no bins.
    """
    kinds = {(one.host, one.key): one.kind for one in report.devices}
    curves = [one for one in report.series if any(one.memory_bytes)]
    shown = [one for one in curves if kinds.get((one.host, one.key)) == "gpu"] or curves
    if not shown or not edges_s:
        return ()
    curve = max(shown, key=lambda one: max(m or 0.0 for m in one.memory_bytes))
    places = np.searchsorted(edges_s[1:], curve.t_s)
    highest: list[float | None] = [None] * (len(edges_s) - 1)
    for place, size in zip(places.tolist(), curve.memory_bytes, strict=True):
        if size is not None and place < len(highest):
            highest[place] = max(highest[place] or 0.0, size)
    return tuple(highest)


def _thinned(points: Sequence[_T]) -> tuple[_T, ...]:
    kept = np.linspace(0, len(points) - 1, min(len(points), _POINTS)).round().astype(int)
    return tuple(points[i] for i in np.unique(kept).tolist())


def _rounded(values: Sequence[float]) -> tuple[float, ...]:
    return tuple(float(f"{value:.6g}") for value in values)
