"""Computes how long a phase counts in an interval of an energy curve.

The energy of an interval is a linear function of the power before and during it. If the power is
1 W in one phase and 0 W otherwise, the value of this function is the exposure of the interval to
the phase, in seconds. For an interval between two readings of an energy counter, the exposure is
the time that interval and phase have in common. For an interval between two power readings, it also
depends on how the sensor smooths its readings.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from energy_callbacks.sensing.estimation.series import Array

# Resolution of the table of a sensor's response, s: small against the errors of edges (0.15 ms).
# Delays of ``edge_delays`` are multiples of it.
_STEP_S: Final = 2.5e-4
# After this many time constants a sensor shows the new power.
_SETTLED: Final = 8.0
_ZERO, _ONE = np.zeros(1), np.ones(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How the energies of intervals depend on a jump of power.

    Attributes:
        is_exact: whether each interval contains the energy between its ends, as with a counter. The
            other attributes are then not used.
        window_s: time over which a power reading averages, s.
        period_s: time between two updates of a value that is read at unrelated times, s.
        response_s: time constant of the sensor's first-order response, s.
        assumed_response_s: time constant with which the energies were computed, s.
    """

    is_exact: bool
    window_s: float = 0.0
    period_s: float = 0.0
    response_s: float = 0.0
    assumed_response_s: float = 0.0


class Exposure:
    """Computes exposures for one shape, as a mean over delays.

    Args:
        shape: how energies depend on power.
        delays_s: delays of the edges, multiples of 0.25 ms, (D,).
        weights: weight of each delay, (D,); they sum to 1.

    Attributes:
        reach_s: time after a jump from which on readings show the new power, s.
        ahead_s: time before a jump until which readings show the old power, s.
    """

    def __init__(self, shape: Shape, delays_s: Array = _ZERO, weights: Array = _ONE) -> None:
        self._is_exact = shape.is_exact
        self._response_s = shape.assumed_response_s
        first_s, last_s = float(delays_s[0]), float(delays_s[-1])
        half_s = (shape.window_s + shape.period_s) / 2.0 + _STEP_S
        after_s = half_s + _SETTLED * shape.response_s
        self.ahead_s, self.reach_s = half_s - first_s, after_s + last_s
        since_s = np.arange(-half_s, self.reach_s - first_s + _STEP_S, _STEP_S)
        shown, self._shown = _shown_after_jump(since_s, shape), np.zeros(len(since_s))
        places = np.round((delays_s - first_s) / _STEP_S).astype(np.intp)
        # Not ``np.convolve``, because most of the steps have no delay.
        for place, weight in zip(places.tolist(), weights.tolist(), strict=True):
            if weight:
                self._shown[place:] += weight * shown[: len(shown) - place]
        self._since_s = since_s + first_s

    def after_jumps(self, since_s: Array, width_s: Array, signs: Array) -> Array:
        """Return weighted sums of exposures to the times after m edges.

        Args:
            since_s: time from each edge to the ends of consecutive intervals, s, (m, ..., n + 1).
            width_s: widths of the intervals, s, (..., n).
            signs: weights of the edges, (..., m).

        Returns:
            Sums of exposures in seconds: the dimensions of ``signs``, then those of ``since_s``,
            both without the edges, (..., ..., n).
        """
        # Exposures are linear in what is shown, so the edges are summed first: it takes less time.
        shown = np.tensordot(signs, self._shown_at(since_s), axes=1)
        return self._exposed(shown[..., :-1], shown[..., 1:], width_s)

    def between(self, start_s: Array, end_s: Array) -> Array:
        """Return the exposure of each interval to the time after an edge.

        Args:
            start_s: time from the edge to the start of the interval, s.
            end_s: time from the edge to its end, s.
        """
        return self._exposed(self._shown_at(start_s), self._shown_at(end_s), end_s - start_s)

    def _exposed(self, early: Array, late: Array, width_s: Array) -> Array:
        """Return exposures of intervals between two values of ``_shown_at``."""
        if self._is_exact:
            return late - early
        return (early + late) * (width_s / 2.0) + (late - early) * self._response_s

    def _shown_at(self, since_s: Array) -> Array:
        """Return the value after a jump from 0 W to 1 W: of a reading, or of a counter in J."""
        shown: Array = np.interp(
            since_s, self._since_s, self._shown, right=None if self._is_exact else 1.0
        )
        if self._is_exact:
            shown += np.maximum(since_s - self._since_s[-1], 0.0)
        return shown


def _shown_after_jump(since_s: Array, shape: Shape) -> Array:
    """Return what a sensor shows at a time after a jump from 0 W to 1 W."""
    if shape.is_exact:
        return np.maximum(since_s, 0.0)
    if shape.response_s:
        return -np.expm1(-np.maximum(since_s, 0.0) / shape.response_s)
    half_s = max(shape.window_s, _STEP_S) / 2.0
    late, early = (_ramp(since_s + shift_s, shape.period_s) for shift_s in (half_s, -half_s))
    return (late - early) / (2.0 * half_s)


def _ramp(since_s: Array, blur_s: float) -> Array:
    """Return the mean time since jumps that are uniform in +- ``blur_s / 2``; 0 before them."""
    if not blur_s:
        return np.maximum(since_s, 0.0)
    inside = np.clip(since_s / blur_s + 0.5, 0.0, 1.0)
    return blur_s * inside**2 / 2.0 + np.maximum(since_s - blur_s / 2.0, 0.0)
