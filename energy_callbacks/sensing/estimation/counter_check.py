"""Compares an energy counter with power readings, for counters that are known to be wrong at times.

On AMD GPUs, the counter stood still within a process (ROCm/rocm_smi_lib issue 180), counted wrongly
until a restart (ROCm/amdsmi issue 38), and its unit is not documented for every generation.
"""

import math
from collections.abc import Sequence
from typing import Final

from energy_callbacks.sensing.estimation import power_intervals as iv
from energy_callbacks.sensing.estimation.power_intervals import Row

# Time for which the counter must have been compared before it is used, s, and time constant of the
# exponential averages that are compared, s.
_CHECKED_S: Final = 10.0
# Difference from the power readings up to which the counter is used, as a fraction, in addition to
# this many standard errors of the power readings.
_TOLERANCE: Final = 0.1
_ERRORS: Final = 6.0


class CounterCheck:
    """Whether an energy counter agrees with the power readings of the last ten seconds."""

    def __init__(self) -> None:
        self._rise_j = self._area_j = self._noise = self._compared_s = 0.0

    @property
    def is_known(self) -> bool:
        """Whether enough time has been compared."""
        return self._compared_s >= _CHECKED_S

    @property
    def agrees(self) -> bool:
        """Whether the counter may be used: it is known to agree."""
        tolerance_j = _TOLERANCE * self._area_j + _ERRORS * math.sqrt(self._noise)
        return self.is_known and abs(self._rise_j - self._area_j) <= tolerance_j

    def add(self, rise_j: float, width_s: float, segment: Sequence[Row]) -> None:
        """Compare the rise of the counter with the power readings of the same time.

        Args:
            rise_j: rise of the counter, J.
            width_s: duration, s.
            segment: intervals of the power readings in that time; see ``PowerIntervals``. If there
                are none, nothing is compared.
        """
        if not segment:
            return
        keep = math.exp(-width_s / _CHECKED_S)
        self._rise_j = keep * self._rise_j + rise_j
        self._area_j = keep * self._area_j + sum(row[iv.AREA] for row in segment)
        self._noise = keep**2 * self._noise + sum(row[iv.NOISE] for row in segment)
        self._compared_s += width_s
