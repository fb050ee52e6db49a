"""Integrates power samples to energy with the trapezoidal rule; gaps are not bridged."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

GAP_STEPS: Final = 5.0
"""Two samples further apart than this many usual steps have a gap between them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Cumulative energy at each sample.

    Attributes:
        energy_j: energy since the first known power without that of the gaps, (n,); NaN at samples
            without power.
        seen_s: time since the first known power without the gaps, (n,); NaN like ``energy_j``.
        is_edge: whether the sample is the first or last with power, or next to a gap, (n,).
        step_s: usual time between two samples; ``None`` if all have the same time.
        total_j: energy at the last sample with power.
        stderr_j: standard error of ``total_j``, from the change of power between samples.
        covered_s: time from the first to the last sample with power without the gaps.
        gap_s: total time of the gaps.
        gaps: number of gaps.
    """

    energy_j: Array
    seen_s: Array
    is_edge: NDArray[np.bool_]
    step_s: float | None
    total_j: float
    stderr_j: float
    covered_s: float
    gap_s: float
    gaps: int


def integrate(t_s: Array, power_w: Array) -> Curve:
    """Connects neighbours that are at most five usual steps apart with straight lines.

    A step of the power from ``a`` to ``b`` watts at any moment within ``dt`` seconds causes an
    error that is uniform within ``|b - a| dt / 2``; its standard error is
    ``|b - a| dt / sqrt(12)``. The usual step is the median of those above zero.

    Args:
        t_s: times of the samples, ascending, (n,).
        power_w: power at these times, NaN if not known, (n,).

    >>> curve = integrate(np.array([0.0, 1.0, 2.0, 3.0, 13.0, 14.0]), np.full(6, 100.0))
    >>> float(curve.energy_j[-1]), float(curve.seen_s[-1]), curve.gap_s, curve.gaps
    (400.0, 4.0, 10.0, 1)
    """
    all_steps_s = np.diff(t_s)
    all_steps_s = all_steps_s[all_steps_s > 0.0]
    step_s = float(np.median(all_steps_s)) if len(all_steps_s) else None
    [known] = np.nonzero(~np.isnan(power_w))
    power_w, steps_s = power_w[known], np.diff(t_s[known])
    is_gap = steps_s > GAP_STEPS * (step_s or 0.0)
    known_s = np.where(is_gap, 0.0, steps_s)
    means_w = (power_w[1:] + power_w[:-1]) / 2.0
    energy_j, seen_s = np.full((2, len(t_s)), np.nan)
    energy_j[known] = np.append(0.0, np.cumsum(means_w * known_s))[: len(known)]
    seen_s[known] = np.append(0.0, np.cumsum(known_s))[: len(known)]
    is_edge = np.zeros(len(t_s), dtype=bool)
    for places in (known[:1], known[-1:], known[:-1][is_gap], known[1:][is_gap]):
        is_edge[places] = True
    return Curve(
        energy_j=energy_j,
        seen_s=seen_s,
        is_edge=is_edge,
        step_s=step_s,
        total_j=float(energy_j[known[-1]]) if len(known) else 0.0,
        stderr_j=float(np.sqrt(np.sum((np.diff(power_w) * known_s) ** 2) / 12.0)),
        covered_s=float(seen_s[known[-1]]) if len(known) else 0.0,
        gap_s=float(np.where(is_gap, steps_s, 0.0).sum()),
        gaps=int(np.count_nonzero(is_gap)),
    )
