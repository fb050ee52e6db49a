"""Compares an energy counter with power readings, for counters that are known to be wrong at times.

On AMD GPUs, the counter stood still within a process (ROCm/rocm_smi_lib issue 180), counted wrongly
until a restart (ROCm/amdsmi issue 38), and its unit is not documented for every generation.
"""

import math
from collections.abc import Sequence
from typing import Final

from energy_callbacks.sensing.estimation import power_intervals as iv
from energy_callbacks.sensing.estimation.power_intervals import Row

# Time constant of the exponential averages that are compared, s.
_MEMORY_S: Final = 30.0
# Difference from the power readings up to which the counter is used, as a fraction, in addition to
# this many standard errors of the power readings. With a steady load, the errors are small, so that
# a wrong counter is found within a second. With a load that changes, it may take half a minute.
_TOLERANCE: Final = 0.1
_ERRORS: Final = 4.0


class CounterCheck:
    """Whether an energy counter agrees with the power readings of the last half minute."""

    def __init__(self) -> None:
        self._rise_j = self._area_j = self._noise = 0.0

    @property
    def agrees(self) -> bool:
        """Whether the counter may be used."""
        tolerance_j = _TOLERANCE * self._area_j + _ERRORS * math.sqrt(self._noise)
        return abs(self._rise_j - self._area_j) <= tolerance_j

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
        keep = math.exp(-width_s / _MEMORY_S)
        self._rise_j = keep * self._rise_j + rise_j
        self._area_j = keep * self._area_j + sum(row[iv.AREA] for row in segment)
        self._noise = keep**2 * self._noise + sum(row[iv.NOISE] for row in segment)
