"""Converts the power readings of a device to intervals between consecutive readings."""

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from energy_callbacks.core.records import Channel, Sensor
from energy_callbacks.sensing.estimation.exposure import Shape
from energy_callbacks.sensing.estimation.series import Array
from energy_callbacks.sensing.estimation.signal_variability import SignalVariability

START, END, AREA, NOISE, SEEN, BEND, EDGE, INSIDE = range(8)
WIDTH: Final = 8
Row = list[float]

MOST_POWER_W: Final = 20_000.0
"""Power readings above this or below 0 are dropped. A GB200 module draws 2.7 kW."""


@dataclass(frozen=True, slots=True)
class _Hidden:
    """Parameters of the error due to changes of power between two readings.

    The variances are fractions of (change of power x width of the interval)^2. The first number of
    each pair is for smooth readings, the second for rough readings; see
    ``SignalVariability.variance``.

    Attributes:
        noise: variance of the energy of an interval; later readings do not reduce it.
        edge: variance of the energy from the start of the interval to a moment inside it; later
            readings compensate this error.
        smooth_ratio: argument of ``SignalVariability``.
    """

    noise: tuple[float, float]
    edge: tuple[float, float]
    smooth_ratio: float


# The following numbers are fitted for six sensors, so that 95 % confidence intervals contain the
# true energy often enough and are not too wide. tests/benchmarks/calibration.py measures both.
# _FILTERED is for gauges with a response time, and _PLAIN for gauges without one. MEAN is for
# channels of means, and is a pair of variances as in ``_Hidden``. The first noise of _FILTERED is
# fitted, too: 0.003. Theory gives 0.0053 for one jump of power (response time 15 ms, interval
# 20 ms).
_FILTERED: Final = _Hidden(noise=(0.003, 0.055), edge=(0.016, 0.13), smooth_ratio=2.7)
_PLAIN: Final = _Hidden(noise=(0.08, 0.036), edge=(0.002, 0.008), smooth_ratio=1.5)
MEAN: Final = (0.01, 0.02)
# A mean does not show changes of power that repeat within its window. They add a variance, W^2, of
# (UNSEEN x mean)^2. Where there are instant readings, the variance is computed from these instead
# (``counted_intervals``).
UNSEEN: Final = 0.068
# If the window of a gauge is at least this fraction of the interval between two readings, UNSEEN
# applies to the gauge too.
_WHOLE: Final = 0.75
# If the window of a gauge is longer than _SMEARING intervals between readings, the readings show
# all changes of power smoothed. This adds a variance, W^2, of _SMEARED times the variance of the
# readings in one window, plus (_SMEARED_UNSEEN x reading)^2.
_SMEARED: Final = 0.42
_SMEARED_UNSEEN: Final = 0.0065
_SMEARING: Final = 3.0
# If two readings are more than this many sensor periods apart, some readings are missing, and power
# may have changed in between.
_MISSING: Final = 4.0
# Relative error of a reading due to quantisation and noise.
_READING: Final = 0.001


class PowerIntervals:
    """The intervals between consecutive power readings, until ``take`` removes them.

    Each interval is a row of 8 columns:

    ======  ==================================================================================
    START   time of the start, s
    END     time of the end, s
    AREA    energy according to the readings, J: width times mean power of both readings, plus
            response time times increase of power; for a channel of means, width times reading
    NOISE   variance of AREA, J^2; later readings do not reduce it
    SEEN    seconds that readings cover: the width, or 0 for a gap
    BEND    increase of power from the start to the end of the interval, W
    EDGE    additional variance of the energy from START to any moment of the interval, J^2;
            does not accumulate over intervals
    INSIDE  error of the energy from START to a moment of the interval, J, in addition to EDGE:
            its variance is INSIDE^2 * u * (1 - u), where u is the position of the moment (0 at
            START, 1 at END)
    ======  ==================================================================================

    Attributes:
        impossible: number of readings that were dropped because of ``MOST_POWER_W``.
        window_s: time over which a reading averages, s; 0 if not known.
        resolution_s: the larger of ``window_s`` and the sensor's period; infinite without a
            channel.
        is_sparse: whether readings average over only a part of the sensor's period.

    Args:
        channel: the power channel; ``None`` for a device without one, which has no intervals.
    """

    def __init__(self, channel: Channel | None) -> None:
        sensor = (channel and channel.sensor) or Sensor(name="")
        self._is_mean = channel is not None and channel.kind == "mean"
        self._lag_s = sensor.lag_s
        self._response_s = sensor.response_s
        # Two readings of a gauge further apart than this leave a gap. Means leave no gaps, because
        # each covers the time since the previous reading.
        self._max_gap_s = max(5.0 * sensor.period_s, 1.0) if sensor.period_s else math.inf
        self._longest_s = _MISSING * (sensor.period_s or math.inf)
        self._hidden = _FILTERED if sensor.response_s else _PLAIN
        self._variability = SignalVariability(self._hidden.smooth_ratio)
        self._rows: list[Row] = []
        self._last: tuple[float, float] | None = None
        self._window: deque[tuple[float, float]] = deque()
        self._driven_w = self._jump_w = self._tail = 0.0
        self._newest: Row | None = None
        self.impossible = 0
        self.window_s = sensor.window_s or 0.0
        period_s = self._period_s = sensor.period_s or 0.0
        self.resolution_s = max(self.window_s, period_s) if channel else math.inf
        self.is_sparse = 0.0 < self.window_s < period_s

    @property
    def shape(self) -> Shape:
        """How AREA depends on a jump of power."""
        return Shape(
            is_exact=self._is_mean,
            window_s=self.window_s,
            period_s=0.0 if self._response_s else self._period_s,
            response_s=self._response_s,
            assumed_response_s=self._response_s,
        )

    @property
    def start_s(self) -> float | None:
        """Start of the first interval; ``None`` if there are no intervals."""
        return self._rows[0][START] if self._rows else None

    @property
    def end_s(self) -> float:
        """Time of the newest reading minus the sensor's lag; minus infinity before any reading."""
        return self._last[0] if self._last else -math.inf

    def add(self, t_s: float, power_w: float) -> None:
        """Add a reading; ignore it if it is impossible or not later than the previous reading."""
        t_s -= self._lag_s
        before = self._last
        if not 0.0 <= power_w <= MOST_POWER_W:
            self.impossible += 1
        elif before is None or t_s > before[0]:
            self._last = (t_s, power_w)
            self._variability.add(power_w)
            if before is not None:
                self._rows.append(self._interval(*before, t_s, power_w))

    def _interval(self, start_s: float, low_w: float, end_s: float, high_w: float) -> Row:
        width_s, rise_w = end_s - start_s, high_w - low_w
        if self._is_mean:
            inside = self._variability.variance(self._variability.local, *MEAN)
            # The mean of u * (1 - u) from 0 to 1 is 1/6, so the mean variance is
            # width_s**2 * inside.
            inside_j = width_s * math.sqrt(6.0 * inside)
            area_j = high_w * width_s
            return [start_s, end_s, area_j, 0.0, width_s, 0.0, (UNSEEN * area_j) ** 2, inside_j]
        area_j = (low_w + high_w) / 2 * width_s
        if width_s > self._max_gap_s:
            return [start_s, end_s, area_j, 0.0, 0.0, 0.0, 0.0, 0.0]
        area_j += self._response_s * rise_w
        row = [start_s, end_s, area_j, 0.0, width_s, rise_w, 0.0, 0.0]
        if width_s > self._longest_s:
            row[NOISE] = width_s**2 * self._variability.spread / 2.0
        elif self.window_s > _SMEARING * width_s:
            row[EDGE] = self._smeared(end_s, high_w)
        elif self._response_s:
            self._locate_jump(row, low_w, high_w)
        else:
            self._set_errors(row, rise_w**2)
        return row

    def _set_errors(self, row: Row, local: float) -> None:
        """Set NOISE and EDGE of an interval.

        Args:
            row: the interval, changed in place.
            local: square of the change of power in or near the interval, W^2.
        """
        width_s, hidden, variance = row[SEEN], self._hidden, self._variability.variance
        unseen = UNSEEN if self.window_s >= _WHOLE * width_s else _READING
        row[NOISE] = width_s**2 * variance(local, *hidden.noise)
        row[EDGE] = width_s**2 * variance(local, *hidden.edge) + (unseen * row[AREA]) ** 2

    def _locate_jump(self, row: Row, low_w: float, high_w: float) -> None:
        """Set the errors of the interval before ``row``.

        The sensor is a first-order filter: while power is constant, the difference between reading
        and power decreases by a known factor per interval. Therefore the power in an interval is
        computed from the readings at its two ends. If power jumps, the computed power changes in
        two steps: in the interval of the jump and in the next interval. The sizes of the steps
        depend on the time of the jump. The errors are computed from the product of the two steps,
        which is 0 for a jump at the time of a reading.

        Args:
            row: the interval that ends at the newest reading; not yet in ``_rows``.
            low_w: reading at the start of ``row``.
            high_w: reading at the end of ``row``.
        """
        before = self._rows[-1] if self._rows else None
        if before is not self._newest and before is not None:
            self._set_newest_errors()  # readings are missing after ``_newest``
        kept = math.exp(-row[SEEN] / self._response_s)
        driven_w = (high_w - kept * low_w) / (1.0 - kept)
        jump_w = driven_w - self._driven_w
        self._tail = max(4.0 * abs(jump_w * self._jump_w), kept**2 * self._tail)
        if before is not None and 0.0 < before[SEEN] <= self._longest_s:
            self._set_errors(before, self._tail)
        self._driven_w, self._jump_w = driven_w, jump_w
        self._newest = row

    def _smeared(self, t_s: float, power_w: float) -> float:
        """Return EDGE, J^2, of an interval that is much shorter than the window of the gauge."""
        self._window.append((t_s, power_w))
        while self._window[0][0] < t_s - self.window_s:
            self._window.popleft()
        mean_w = sum(w for _, w in self._window) / len(self._window)
        variance = sum((w - mean_w) ** 2 for _, w in self._window) / len(self._window)
        return (_SMEARED * variance + (_SMEARED_UNSEEN * power_w) ** 2) * self.window_s**2

    def _set_newest_errors(self) -> None:
        """Set the errors of ``_newest``, if there is one, without the reading after it."""
        if self._newest is not None:
            self._set_errors(self._newest, self._jump_w**2)
            self._newest = None

    def __len__(self) -> int:
        return len(self._rows)

    def open(self) -> Sequence[Row]:
        """Return all intervals without removing them."""
        self._set_newest_errors()
        return self._rows

    def take(self, until_s: float = math.inf) -> list[Row]:
        """Remove and return the intervals before ``until_s``.

        An interval that contains ``until_s`` is cut there, and its second part is kept.
        """
        if not self._rows or self._rows[0][START] >= until_s:
            return []
        self._set_newest_errors()
        count = bisect_right(self._rows, until_s, key=lambda row: row[END])
        taken, rest = self._rows[:count], self._rows[count:]
        if rest and rest[0][START] < until_s:
            left, rest[0] = _cut(rest[0], until_s)
            taken.append(left)
        self._rows = rest
        return taken


def table(rows: Sequence[Row]) -> Array:
    """Return intervals as an array, (n, 8)."""
    return np.array(rows).reshape(-1, WIDTH)


def _cut(row: Row, t_s: float) -> tuple[Row, Row]:
    """Return the parts of an interval before and after ``t_s``; power is linear inside it."""
    width_s = row[END] - row[START]
    share = (t_s - row[START]) / width_s
    left, right = [v * share for v in row], [v * (1.0 - share) for v in row]
    bow_j = row[BEND] * width_s * share * (1.0 - share) / 2.0
    left[AREA] -= bow_j
    right[AREA] += bow_j
    left[START], left[END], left[EDGE] = row[START], t_s, row[EDGE]
    right[START], right[END], right[EDGE] = t_s, row[END], row[EDGE]
    return left, right
