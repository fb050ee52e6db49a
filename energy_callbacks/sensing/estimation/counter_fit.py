"""Decides where an energy counter is believed, and fits the power readings to it.

``energy_curve`` explains anchors, segments and the factor.
"""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from energy_callbacks.core.records import Reading
from energy_callbacks.sensing.estimation import power_intervals as iv
from energy_callbacks.sensing.estimation.power_intervals import PowerIntervals, Row
from energy_callbacks.sensing.estimation.series import Array

# If a device has power readings, a counter reading is used only if the uncertainty of the time
# since the previous anchor is at most this fraction of that time. Other counter readings would add
# more error than they remove: on an H200, power readings and counter agree within 0.7 %
# (docs/how-it-measures.md, seven load patterns).
_ANCHOR_SHARE: Final = 0.01
# The same where counter readings are as frequent as power readings (see _DENSE), so that power
# readings are not used: dropping a counter reading there adds more error than its time. A time
# error of 10 % of a segment moves at most 10 % of its energy to the adjacent segment.
_DENSE_ANCHOR_SHARE: Final = 0.1
# Plausible ratios of the counter's rise to the energy of the power readings. If counter and power
# readings of a card differ by more than a factor of two, one of them is wrong. The wide range
# applies to power readings that determine only the order of magnitude: readings that average over
# only a part of the time (a quarter on some cards), and readings that are hardly more frequent than
# anchors.
_FACTOR_RANGE: Final = (0.5, 2.0)
_WIDE_FACTOR_RANGE: Final = (0.125, 8.0)
# Once the factor is known, power readings and counter agree within 1 % (H200). A difference of more
# than 10 % plus six standard errors is implausible.
_UNUSUAL: Final = 0.1
_UNUSUAL_ERRORS: Final = 6.0
# Standard deviation of the relative change of the factor from one segment to the next.
_SCALE_NOISE: Final = 0.001
# Time constant of the exponential average of the factor, s. On an H200, the average of ten segments
# of 1 s reduces the scatter of the factor from 0.7 % to 0.2 %.
_FACTOR_MEMORY_S: Final = 10.0
# If a segment is at most this many times as long as the time resolution of the power readings, the
# counter alone is used, because it is more accurate.
_DENSE: Final = 1.25
# In a segment with fewer intervals than this, anchors reduce the variance EDGE
# (``power_intervals``). It is then multiplied by (number of intervals) / _LONG_SEGMENT.
_LONG_SEGMENT: Final = 18
# Number of segments over which variances and the length of segments are averaged.
_VARIANCE_MEMORY: Final = 10.0
# The observed variance of a segment's energy is the squared difference between counter and power
# readings, minus the variance due to the times of both anchors. The stated variance is the sum of
# NOISE, plus the variance due to the factor. NOISE is multiplied by the ratio of the two.
# _VARIANCE_PRIOR is the weight, relative to the observations, of the assumption that the ratio is
# 1. _LEAST_RATIO is the smallest ratio that is used, however well readings and counter agree.
_VARIANCE_PRIOR: Final = 0.2
_LEAST_RATIO: Final = 0.8
# Time constant of the exponential averages that ``CounterCheck`` compares, s.
_CHECK_MEMORY_S: Final = 30.0
# The counter is used if it differs from the power readings by at most the fraction _TOLERANCE plus
# _ERRORS standard errors of the power readings. With a steady load, the errors are small, so that
# a wrong counter is found within a second. With a load that changes, it may take half a minute.
_TOLERANCE: Final = 0.1
_ERRORS: Final = 4.0


class CounterCheck:
    """Whether an energy counter agrees with the power readings of the last half minute.

    This is for counters that are known to be wrong at times. On AMD GPUs, the counter stood still
    within a process (ROCm/rocm_smi_lib issue 180), counted wrongly until a restart (ROCm/amdsmi
    issue 38), and its unit is not documented for every generation.
    """

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
        keep = math.exp(-width_s / _CHECK_MEMORY_S)
        self._rise_j = keep * self._rise_j + rise_j
        self._area_j = keep * self._area_j + sum(row[iv.AREA] for row in segment)
        self._noise = keep**2 * self._noise + sum(row[iv.NOISE] for row in segment)


class FitToCounter:
    """Compares the energy counter of a device with its power readings, segment by segment.

    Attributes:
        factor: rise of the counter / energy of the power readings; ``None`` before ``fit``.
        segment_s: mean length of recent segments in which the counter is believed, s.
        disagreements: number of segments in which it is not believed.

    Args:
        power: the power readings.
        has_power: whether the device has a channel of power.
        is_checked: whether the counter is used only while it agrees with ``CounterCheck``.
    """

    def __init__(self, power: PowerIntervals, *, has_power: bool, is_checked: bool) -> None:
        self._power = power
        self._has_power = has_power
        self._check = CounterCheck() if is_checked else None
        self._known_j = np.zeros(2)
        self._variances = np.zeros(2)  # of a segment's energy: mean observed, mean stated
        self._variance_ratio = 1.0
        self.factor: float | None = None
        self.segment_s = 1.0
        self.disagreements = 0

    @property
    def agrees(self) -> bool:
        """Whether the counter may be used according to ``CounterCheck``."""
        return self._check is None or self._check.agrees

    def scale_error(self, width_s: float) -> float:
        """Return the relative error of energies in ``width_s`` seconds due to a varying factor."""
        is_scaled = self.factor is not None
        return _SCALE_NOISE * min(width_s, self.segment_s) / width_s if is_scaled else 0.0

    def is_usable(self, before: Reading, anchor: Reading) -> bool:
        """Return whether the times of two counter readings are known well enough."""
        width_s = anchor.t_s - before.t_s
        t_error_s = math.hypot(anchor.t_error_s, before.t_error_s)
        share = _DENSE_ANCHOR_SHARE if self.is_dense(width_s) else _ANCHOR_SHARE
        return width_s > 0.0 and not (self._has_power and t_error_s > share * width_s)

    def is_dense(self, width_s: float) -> bool:
        """Return whether anchors this far apart are as frequent as the power readings.

        For a counter that is checked by ``CounterCheck``, they always count as frequent.
        """
        return self._check is not None or width_s <= _DENSE * self._power.resolution_s

    def is_believed(
        self, rise_j: float, width_s: float, segment: Sequence[Row], is_dense: bool
    ) -> bool:
        """Return whether the counter is used in a segment, and count disagreements.

        Args:
            rise_j: rise of the counter in the segment.
            width_s: duration of the segment.
            segment: intervals of the power readings; empty if they cover too little of it.
            is_dense: see ``is_dense``.
        """
        is_believed = self.is_plausible(rise_j, width_s, segment, is_dense)
        if is_believed and self._check is not None:
            self._check.add(rise_j, width_s, segment)
            is_believed = self._check.agrees
        if is_believed:
            self.segment_s += (width_s - self.segment_s) / _VARIANCE_MEMORY
        self.disagreements += not is_believed
        return is_believed

    def is_plausible(
        self, rise_j: float, width_s: float, segment: Sequence[Row], is_dense: bool
    ) -> bool:
        """Return whether the rise of the counter is possible; arguments as of ``is_believed``."""
        if not 0.0 <= rise_j <= iv.MOST_POWER_W * width_s:
            return False
        if not segment:
            return True
        if is_dense or self._power.is_sparse:
            return _agree(rise_j, segment, _WIDE_FACTOR_RANGE)
        return _agree(rise_j, segment, _FACTOR_RANGE) and self._is_usual(rise_j, segment)

    def _is_usual(self, rise_j: float, segment: Sequence[Row]) -> bool:
        """Return whether the counter's rise agrees with the readings' energy times the factor.

        The two differ, for example, if the counter stopped for a while. Returns ``True`` if this
        cannot be checked: before the factor is known, or if the segment has gaps.
        """
        has_holes = any(row[iv.SEEN] == 0.0 for row in segment)
        if self.factor is None or has_holes:
            return True
        expected_j = self.factor * sum(row[iv.AREA] for row in segment)
        noise = self._variance_ratio * sum(row[iv.NOISE] for row in segment)
        noise_j = self.factor * math.sqrt(noise)
        return abs(rise_j - expected_j) <= _UNUSUAL * expected_j + _UNUSUAL_ERRORS * noise_j

    def fit(self, segment: Array, rise_j: float, width_s: float, point: float) -> float:
        """Fit the power readings of a segment to the counter, and return the factor.

        Args:
            segment: intervals of the power readings between two anchors, changed in place: their
                energies then sum to ``rise_j`` divided by the factor.
            rise_j: rise of the counter in the segment.
            width_s: duration of the segment.
            point: variance of C at the anchors, J^2.
        """
        factor = self._learn_factor(rise_j, float(segment[:, iv.AREA].sum()), width_s)
        self._rescale_errors(segment, rise_j / factor, point)
        _cover_gaps(segment)
        _fit(segment, rise_j / factor)
        return factor

    def _rescale_errors(self, segment: Array, energy_j: float, point: float) -> None:
        """Update the variance ratio, multiply NOISE by it, and reduce EDGE in a short segment.

        Args:
            segment: see ``fit``.
            energy_j: energy of the segment according to the counter, divided by the factor.
            point: see ``fit``.
        """
        off_j = energy_j - segment[:, iv.AREA].sum()
        stated = segment[:, iv.NOISE].sum() + (_SCALE_NOISE * energy_j) ** 2
        newest = np.array([max(off_j**2 - 2.0 * point, 0.0), stated])
        self._variances += (newest - self._variances) / _VARIANCE_MEMORY
        prior = _VARIANCE_PRIOR * self._variances[1]
        ratio = (self._variances[0] + prior) / max(self._variances[1] + prior, 1e-30)
        self._variance_ratio = max(ratio, _LEAST_RATIO)
        segment[:, iv.NOISE] *= self._variance_ratio
        segment[:, iv.EDGE] *= min(len(segment) / _LONG_SEGMENT, 1.0)

    def _learn_factor(self, rise_j: float, area_j: float, width_s: float) -> float:
        """Update and return the factor.

        It is an average over recent segments, because the factor of one segment is less accurate.
        """
        keep = np.exp(-width_s / _FACTOR_MEMORY_S)
        self._known_j = keep * self._known_j + np.array([rise_j, area_j])
        self.factor = float(self._known_j[0] / self._known_j[1]) if self._known_j[1] else 1.0
        return self.factor or 1.0


def _agree(rise_j: float, segment: Sequence[Row], factors: tuple[float, float]) -> bool:
    """Return whether the counter's rise, divided by the energy of the readings, is in a range.

    The energy of the readings is uncertain by ``slack_j``, because power may have jumped at any
    time between two readings.

    Args:
        rise_j: rise of the counter in the segment.
        segment: intervals of the power readings in the segment.
        factors: lowest and highest ratio.
    """
    area_j = sum(row[iv.AREA] for row in segment)
    slack_j = sum(abs(row[iv.BEND] * row[iv.SEEN]) for row in segment) / 2.0
    low, high = factors
    return low * (area_j - slack_j) <= rise_j <= high * (area_j + slack_j)


def _fit(intervals: Array, energy_j: float) -> None:
    """Change the intervals so that their energies sum to ``energy_j``.

    Intervals with a larger NOISE change more. If the energy of an interval would become negative,
    all energies are multiplied by the same number instead.
    """
    area, noise = intervals[:, iv.AREA], intervals[:, iv.NOISE]
    total_j = area.sum()
    if not total_j:
        return
    by_noise = noise.sum() / (noise.sum() + (_SCALE_NOISE * total_j) ** 2)
    shares = by_noise * noise / (noise.sum() or 1.0) + (1.0 - by_noise) * area / total_j
    moved = area + (energy_j - total_j) * shares
    area[:] = moved if (moved >= 0.0).all() else area * (energy_j / total_j)


def _cover_gaps(intervals: Array) -> None:
    """Mark gaps as covered, because the counter covers them.

    In a gap, INSIDE allows for any distribution of the power.
    """
    is_gap = intervals[:, iv.SEEN] == 0.0
    intervals[is_gap, iv.INSIDE] = np.abs(intervals[is_gap, iv.AREA]) / np.sqrt(3.0)
    intervals[:, iv.SEEN] = intervals[:, iv.END] - intervals[:, iv.START]
