"""Energy of power samples over their own time; if they are too far apart nothing is known."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

GAP_STEPS: Final = 5.0
"""Two samples further apart than this many usual steps have a gap between them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Energy that grew from sample to sample.

    Attributes:
        energy_j: since the first sample, without what the gaps hold, (n,).
        is_after_gap: whether nothing is known of the step that leads to a sample, (n,).
        step_s: the usual time between two samples; ``None`` for fewer than two.
        stderr_j: of the whole, by what the power did between two samples.
        seen_s: time since the first sample, without the gaps, (n,).
        gap_s: time of the gaps.
    """

    energy_j: Array
    is_after_gap: NDArray[np.bool_]
    step_s: float | None
    stderr_j: float
    seen_s: Array
    gap_s: float

    @property
    def gaps(self) -> int:
        """How many there are."""
        return int(np.count_nonzero(self.is_after_gap))


def integrate(t_s: Array, power_w: Array, step_s: float | None = None) -> Curve:
    """Straight lines between neighbours that are at most five usual steps apart.

    A step from ``a`` to ``b`` watts that happened anywhere in ``dt`` seconds makes an error that
    is uniform within ``|b - a| dt / 2``; of that the standard error is ``|b - a| dt / sqrt(12)``.

    Args:
        t_s: (n,), never falling.
        power_w: (n,).
        step_s: the usual one; ``None`` takes the median.

    >>> curve = integrate(np.array([0.0, 1.0, 2.0, 3.0, 13.0, 14.0]), np.full(6, 100.0))
    >>> float(curve.energy_j[-1]), float(curve.seen_s[-1]), curve.gap_s, curve.gaps
    (400.0, 4.0, 10.0, 1)
    """
    steps_s = np.diff(t_s)
    if step_s is None and (steps_s > 0.0).any():
        step_s = float(np.median(steps_s[steps_s > 0.0]))
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
