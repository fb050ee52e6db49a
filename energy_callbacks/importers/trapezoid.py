"""Integrates power samples to energy with the trapezoidal rule; gaps are not bridged."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

GAP_STEPS: Final = 5.0
"""Two samples further apart than this many usual steps have a gap between them."""


class Curve:
    """Cumulative energy at each sample.

    Neighbours that are at most five usual steps apart are connected with straight lines; the usual
    step is the median of those above zero. A step of the power from ``a`` to ``b`` watts at any
    moment within ``dt`` seconds causes an error that is uniform within ``|b - a| dt / 2``; its
    standard error is ``|b - a| dt / sqrt(12)``.

    Args:
        t_s: times of the samples, ascending, (n,).
        power_w: power at these times, NaN if not known, (n,).

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

    >>> curve = Curve(np.array([0.0, 1.0, 2.0, 3.0, 13.0, 14.0]), np.full(6, 100.0))
    >>> float(curve.energy_j[-1]), float(curve.seen_s[-1]), curve.gap_s, curve.gaps
    (400.0, 4.0, 10.0, 1)
    """

    def __init__(self, t_s: Array, power_w: Array) -> None:
        all_steps_s = np.diff(t_s)
        all_steps_s = all_steps_s[all_steps_s > 0.0]
        self.step_s = float(np.median(all_steps_s)) if len(all_steps_s) else None
        [known] = np.nonzero(~np.isnan(power_w))
        power_w, steps_s = power_w[known], np.diff(t_s[known])
        is_gap = steps_s > GAP_STEPS * (self.step_s or 0.0)
        self.gaps, self.gap_s = int(is_gap.sum()), float(np.where(is_gap, steps_s, 0.0).sum())
        known_s = np.where(is_gap, 0.0, steps_s)
        means_w = (power_w[1:] + power_w[:-1]) / 2.0
        self.energy_j, self.seen_s = np.full((2, len(t_s)), np.nan)
        self.energy_j[known] = np.append(0.0, np.cumsum(means_w * known_s))[: len(known)]
        self.seen_s[known] = np.append(0.0, np.cumsum(known_s))[: len(known)]
        self.stderr_j = float(np.sqrt(np.sum((np.diff(power_w) * known_s) ** 2) / 12.0))
        self.total_j = float(self.energy_j[known[-1]]) if len(known) else 0.0
        self.covered_s = float(self.seen_s[known[-1]]) if len(known) else 0.0
        self.is_edge = np.zeros(len(t_s), dtype=bool)
        for places in (known[:1], known[-1:], known[:-1][is_gap], known[1:][is_gap]):
            self.is_edge[places] = True
