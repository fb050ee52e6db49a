"""Computes steps, energy and the user's metrics over the course of a run."""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from energy_callbacks.report.collect.merge import MergedAttempt
from energy_callbacks.report.collect.rows import Array, DeviceColumns
from energy_callbacks.report.model.curves import Progress, Span
from energy_callbacks.report.model.metrics import Metric

# Maximum number of points of ``Progress``. This number of points takes 15 kB of a report, and is
# enough for curves and for the blocks into which ``compare`` divides a run to compute intervals.
MAX_POINTS: Final = 240
# Maximum number of metrics.
MAX_METRICS = 20
# Maximum number of points of all metrics together, and of one metric. They limit the size of the
# HTML page.
MAX_METRIC_POINTS_IN_ALL, MAX_METRIC_POINTS = 1200, 300
_T_DECIMALS, _ENERGY_DECIMALS = 3, 1
_DIGITS = 6
# One point of a metric: time in s, step, epoch, cumulative energy in J, value.
_Point = tuple[float, int | None, float | None, float | None, float]


def energy_at(attempt: MergedAttempt, t_s: Array) -> Array | None:
    """Return the energy that an attempt has used until each time in ``t_s``, in J.

    Args:
        attempt: one attempt of the run.
        t_s: (n,), times on the time axis of the run.

    Returns:
        (n,), or ``None`` if no energy is known.
    """
    energy_j = np.zeros(len(t_s))
    is_known = False
    for device in attempt.counted:
        columns = device.owner.columns.get(device.key, DeviceColumns())
        rows = ~np.isnan(columns["energy_j"])
        if rows.any():
            at_s = attempt.start_of(device.owner) + np.append(0.0, columns.seen_s[rows])
            energy_j += np.interp(t_s, at_s, np.append(0.0, columns["energy_j"][rows]))
            is_known = True
    return energy_j if is_known else None


def attempt_j(attempt: MergedAttempt) -> float:
    """Return the known energy of an attempt, in J; 0 if none is known."""
    return sum(device.energy.energy_j or 0.0 for device in attempt.counted)


def progress(attempts: Sequence[MergedAttempt], timeline: Sequence[Span]) -> Progress | None:
    """Return steps, samples and energy over time; ``None`` if steps or energy are not known.

    Args:
        attempts: the attempts of the run; steps are those of ``MergedAttempt.lead``.
        timeline: the phases of the run over time.
    """
    tables: list[Array] = []
    before = np.zeros(4)  # steps, samples, energy and training energy of earlier attempts
    for attempt in attempts:
        if attempt.lead.resumed_at_step is not None:
            before[0] = attempt.lead.resumed_at_step
        used_j = before[2] + attempt_j(attempt)
        table = _table(attempt, timeline)
        if table is not None:
            table[1:] += before[:, np.newaxis]
            tables.append(table)
            before = table[1:, -1].copy()
        before[2] = used_j
    if not tables:
        return None
    whole = np.concatenate(tables, axis=1)
    last = whole.shape[1] - 1
    kept = np.unique(np.linspace(0, last, min(MAX_POINTS, last + 1)).round().astype(int))
    t_s, step, samples, energy_j, train_j = whole[:, kept]
    return Progress(
        t_s=_rounded(t_s, _T_DECIMALS),
        step=tuple(int(one) for one in step),
        samples=None if np.isnan(samples).any() else _rounded(samples, 1),
        energy_j=_rounded(energy_j, _ENERGY_DECIMALS),
        train_j=_rounded(train_j, _ENERGY_DECIMALS),
    )


def _table(attempt: MergedAttempt, timeline: Sequence[Span]) -> Array | None:
    """Return time, steps, samples, energy and energy of the phase ``train``, (5, n).

    All values except the time are cumulative since the start of the attempt. Samples are NaN if not
    known. The result is ``None`` if there are no steps or no energy is known.
    """
    lines = attempt.lead.steps
    t_s = np.asarray([line["end_s"] for line in lines]) + attempt.start_of(attempt.lead)
    spans = np.array([(s.start_s, s.end_s) for s in timeline if s.phase == "train"]).reshape(-1, 2)
    known_j = energy_at(attempt, np.concatenate((t_s, spans[:, 0], spans[:, 1])))
    if not lines or known_j is None:
        return None
    energy_j, starts_j, ends_j = np.split(known_j, (len(t_s), len(t_s) + len(spans)))
    steps, samples = (
        np.cumsum(np.array([line[name] for line in lines], dtype=float))  # None becomes NaN
        for name in ("steps", "samples")
    )
    train_j = _energy_in_spans(t_s, energy_j, spans[:, 0], starts_j, ends_j)
    # Each rank reports only its own samples. The other ranks are assumed to have the same number.
    return np.array((t_s, steps, samples * len(attempt.processes), energy_j, train_j))


def _energy_in_spans(
    t_s: Array, energy_j: Array, starts_s: Array, starts_j: Array, ends_j: Array
) -> Array:
    """Return the energy that was used inside the spans up to each time, (n,), in J.

    Args:
        t_s: (n,), the times.
        energy_j: (n,), cumulative energy at ``t_s``.
        starts_s: (m,), starts of the spans, which do not overlap.
        starts_j: (m,), cumulative energy at the starts.
        ends_j: (m,), cumulative energy at the ends.
    """
    if not len(starts_s):
        return np.zeros(len(t_s))
    last = np.searchsorted(starts_s, t_s, side="right") - 1
    before_j = np.append(0.0, np.cumsum(ends_j - starts_j))
    inside_j = np.minimum(energy_j, ends_j[last]) - starts_j[last]
    return np.where(last < 0, 0.0, before_j[last] + inside_j)


def _rounded(values: Array, decimals: int) -> tuple[float, ...]:
    return tuple(values.round(decimals).tolist())


def metrics(attempts: Sequence[MergedAttempt]) -> tuple[Metric, ...]:
    """Return the user's metrics, at most ``MAX_METRICS``, in the order of their first values."""
    points: dict[str, list[_Point]] = {}
    before_j = 0.0
    for attempt in attempts:
        for name, point in _points(attempt, before_j):
            points.setdefault(name, []).append(point)
        before_j += attempt_j(attempt)
    chosen = list(points.items())[:MAX_METRICS]
    limit = min(MAX_METRIC_POINTS, MAX_METRIC_POINTS_IN_ALL // max(len(chosen), 1))
    return tuple(_metric(name, _decimated(listed, limit)) for name, listed in chosen)


def _points(attempt: MergedAttempt, before_j: float) -> Iterator[tuple[str, _Point]]:
    records = attempt.lead.metrics
    t_s = np.asarray([record["t_s"] for record in records]) + attempt.start_of(attempt.lead)
    energy_j = energy_at(attempt, t_s)
    for i, record in enumerate(records):
        used_j = None if energy_j is None else before_j + float(energy_j[i])
        known_j = None if used_j is None else round(used_j, _ENERGY_DECIMALS)
        at_s = round(float(t_s[i]), _T_DECIMALS)
        for name, value in record["values"].items():
            rounded = float(f"{value:.{_DIGITS}g}")
            yield name, (at_s, record["step"], record["epoch"], known_j, rounded)


def _decimated(points: Sequence[_Point], limit: int) -> Sequence[_Point]:
    """Return at most ``limit`` points: evenly spaced ones, and those with extreme values."""
    if len(points) <= limit:
        return points
    values = [point[-1] for point in points]
    even = np.linspace(0, len(points) - 1, limit - 2).round().astype(int)
    chosen = {*even.tolist(), int(np.argmin(values)), int(np.argmax(values))}
    return [points[i] for i in sorted(chosen)]


def _metric(name: str, points: Sequence[_Point]) -> Metric:
    t_s, step, epoch, energy_j, value = zip(*points, strict=True)
    return Metric(name=name, t_s=t_s, step=step, epoch=epoch, energy_j=energy_j, value=value)
