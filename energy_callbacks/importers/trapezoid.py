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
        energy_j: energy since the first sample without that of the gaps, (n,).
        is_after_gap: whether a gap ends at the sample, (n,).
        step_s: usual time between two samples; ``None`` for fewer than two.
        stderr_j: standard error of the whole energy, from the change of power between samples.
        seen_s: time since the first sample without the gaps, (n,).
        gap_s: total time of the gaps.
    """

    energy_j: Array
    is_after_gap: NDArray[np.bool_]
    step_s: float | None
    stderr_j: float
    seen_s: Array
    gap_s: float

    @property
    def gaps(self) -> int:
        """Number of gaps."""
        return int(np.count_nonzero(self.is_after_gap))

    @property
    def covered_s(self) -> float:
        """Time from the first to the last sample without the gaps."""
        return float(self.seen_s[-1]) if len(self.seen_s) else 0.0


def integrate(t_s: Array, power_w: Array, step_s: float | None = None) -> Curve:
    """Connects neighbours that are at most five usual steps apart with straight lines.

    A step of the power from ``a`` to ``b`` watts at any moment within ``dt`` seconds causes an
    error that is uniform within ``|b - a| dt / 2``; its standard error is
    ``|b - a| dt / sqrt(12)``.

    Args:
        t_s: times of the samples, ascending, (n,).
        power_w: power at these times, (n,).
        step_s: usual time between two samples; ``None`` takes the median.

    >>> curve = integrate(np.array([0.0, 1.0, 2.0, 3.0, 13.0, 14.0]), np.full(6, 100.0))
    >>> float(curve.energy_j[-1]), float(curve.seen_s[-1]), curve.gap_s, curve.gaps
    (400.0, 4.0, 10.0, 1)
    """
    steps_s = np.diff(t_s)
    step_s = usual_step_s(t_s) if step_s is None else step_s
    is_gap = steps_s > GAP_STEPS * (step_s or 0.0)
    known_s = np.where(is_gap, 0.0, steps_s)
    means_w = (power_w[1:] + power_w[:-1]) / 2.0
    return Curve(
        energy_j=np.append(0.0, np.cumsum(means_w * known_s))[: len(t_s)],
        is_after_gap=np.append(False, is_gap)[: len(t_s)],
        step_s=step_s,
        stderr_j=float(np.sqrt(np.sum((np.diff(power_w) * known_s) ** 2) / 12.0)),
        seen_s=np.append(0.0, np.cumsum(known_s))[: len(t_s)],
        gap_s=float(np.where(is_gap, steps_s, 0.0).sum()),
    )


def usual_step_s(t_s: Array) -> float | None:
    """Returns the median time between two samples, equal times left out; ``None`` if all are."""
    steps_s = np.diff(t_s)
    steps_s = steps_s[steps_s > 0.0]
    return float(np.median(steps_s)) if len(steps_s) else None
