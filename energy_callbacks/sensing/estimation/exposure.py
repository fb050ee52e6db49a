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
_STEP_S: Final = 2e-4
# After this many time constants a sensor shows the new power.
_SETTLED: Final = 8.0


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
    """Computes exposures for one shape.

    Args:
        shape: how energies depend on power.

    Attributes:
        reach_s: time after a jump from which on readings show the new power, s.
        ahead_s: time before a jump until which readings show the old power, s.
    """

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        half_s = (shape.window_s + shape.period_s) / 2.0 + _STEP_S
        self.reach_s = half_s + _SETTLED * shape.response_s
        self.ahead_s = half_s
        self._since_s = np.arange(-half_s, self.reach_s + _STEP_S, _STEP_S)
        self._readings = _reading_after_jump(self._since_s, shape)

    def after_jump(self, since_s: Array) -> Array:
        """Return the exposure of each interval to the time after an edge.

        Args:
            since_s: time from the edge to the ends of consecutive intervals, s, (..., n + 1).

        Returns:
            Exposures in seconds, (..., n).
        """
        if self._shape.is_exact:
            exact: Array = np.diff(np.maximum(since_s, 0.0))
            return exact
        # Readings later than the table show the new power, as do those later than ``reach_s``.
        reading = np.interp(since_s, self._since_s, self._readings, right=1.0)
        half_s, response_s = np.diff(since_s) / 2.0, self._shape.assumed_response_s
        late, early = reading[..., 1:], reading[..., :-1]
        exposed: Array = late * (half_s + response_s) + early * (half_s - response_s)
        return exposed


def _reading_after_jump(since_s: Array, shape: Shape) -> Array:
    """Return what a sensor shows at a time after a jump from 0 W to 1 W."""
    if shape.response_s:
        filtered: Array = -np.expm1(-np.maximum(since_s, 0.0) / shape.response_s)
        return filtered
    half_s = max(shape.window_s, _STEP_S) / 2.0
    late, early = (_ramp(since_s + shift_s, shape.period_s) for shift_s in (half_s, -half_s))
    averaged: Array = (late - early) / (2.0 * half_s)
    return averaged


def _ramp(since_s: Array, blur_s: float) -> Array:
    """Return the mean time since jumps that are uniform in +- ``blur_s / 2``; 0 before them."""
    if not blur_s:
        return np.maximum(since_s, 0.0)
    inside = np.clip(since_s / blur_s + 0.5, 0.0, 1.0)
    ramp: Array = blur_s * inside**2 / 2.0 + np.maximum(since_s - blur_s / 2.0, 0.0)
    return ramp
