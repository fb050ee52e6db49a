"""The user's metrics from journals, each value with the energy used until then."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from energy_callbacks.report.collect.merge import MergedAttempt
from energy_callbacks.report.collect.run_energy import energy_at, whole_j
from energy_callbacks.report.model.metrics import Metric

MAX_METRICS = 20
# All curves together, so that a page stays small, and of one.
MAX_POINTS_IN_ALL, MAX_POINTS = 1200, 300
_T_DECIMALS, _ENERGY_DECIMALS = 3, 1
_DIGITS = 6


class _Point(NamedTuple):
    t_s: float
    step: int | None
    epoch: float | None
    energy_j: float | None
    value: float


def metrics(attempts: Sequence[MergedAttempt]) -> tuple[Metric, ...]:
    """Of the lead processes, in the order of their first record."""
    found: dict[str, list[_Point]] = {}
    before_j = 0.0
    for attempt in attempts:
        for name, point in _points(attempt, before_j):
            found.setdefault(name, []).append(point)
        before_j += whole_j(attempt)
    chosen = list(found.items())[:MAX_METRICS]
    limit = min(MAX_POINTS, MAX_POINTS_IN_ALL // max(len(chosen), 1))
    return tuple(_metric(name, _decimated(points, limit)) for name, points in chosen)


def _points(attempt: MergedAttempt, before_j: float) -> Iterator[tuple[str, _Point]]:
    records = attempt.lead.metrics
    t_s = np.asarray([record["t_s"] for record in records]) + attempt.start_of(attempt.lead)
    found_j = energy_at(attempt, t_s)
    energy_j = None if found_j is None else found_j.tolist()
    for i, record in enumerate(records):
        known_j = None if energy_j is None else round(before_j + energy_j[i], _ENERGY_DECIMALS)
        at_s = round(float(t_s[i]), _T_DECIMALS)
        for name, value in record["values"].items():
            rounded = float(f"{value:.{_DIGITS}g}")
            yield name, _Point(at_s, record["step"], record["epoch"], known_j, rounded)


def _decimated(points: Sequence[_Point], limit: int) -> list[_Point]:
    """At most ``limit`` points: evenly chosen, with the lowest, the highest, first and last."""
    if len(points) <= limit:
        return list(points)
    values = [point.value for point in points]
    even = np.linspace(0, len(points) - 1, limit - 2).round().astype(int)
    chosen = {*even.tolist(), int(np.argmin(values)), int(np.argmax(values))}
    return [points[i] for i in sorted(chosen)]


def _metric(name: str, points: Sequence[_Point]) -> Metric:
    t_s, step, epoch, energy_j, value = zip(*points, strict=True)
    return Metric(name=name, t_s=t_s, step=step, epoch=epoch, energy_j=energy_j, value=value)
