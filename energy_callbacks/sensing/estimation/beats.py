"""Computes the errors of energies if the period of the training steps beats with a sensor.

A load with the period p of the steps beats with readings that are w apart if a small multiple k of
its frequency is close to a multiple m of the frequency of the readings. Then the readings move
slowly through the step: they show a wave with the frequency ``|k / p - m / w|`` that the load does
not have, or they hide the load's own wave. There are two cases.

Power readings of single moments show a false wave (``FalseWave``). Steps repeat, so the energy from
one moment of a step to the same moment of the next step is constant. Therefore the cumulative
energy of the readings, taken once per step, deviates from a straight line only by the false wave.

Means over about one step hide the wave (``hidden_variance``). This applies to intervals whose
energy is known from a counter alone, and to gauges that average over about one step.
"""

import math
from bisect import bisect_left, bisect_right
from collections import deque
from typing import Final, NamedTuple

import numpy as np

from energy_callbacks.core.records import NORMAL_95, Channel, Energy, Sensor
from energy_callbacks.sensing.estimation.cumulative_energy import CumulativeEnergy

# Multiples of the step's frequency that are considered. The amplitudes of higher multiples are
# small: in a square wave, the amplitude of multiple k is 1/k of the first one.
_MULTIPLES: Final = range(1, 5)
# A beat lasts longer than this many readings, and than this many steps. Readings and steps resolve
# faster changes, and the errors that ``PowerIntervals`` states include them. The numbers and
# _MULTIPLES were compared on square waves of 26, 40, 62, 112, 150 and 200 ms, a sine of 61 ms and
# bursts of 75 ms, which tests/benchmarks/calibration.py does not judge. With fewer multiples, the
# intervals of a gauge that sees 10 ms of 20 ms hold in 83 % of the windows of 50 ms, not in 93 %.
# _READINGS_IF_HIDDEN is larger, because waves further from the period of the readings are covered
# by the other errors: with 4, 6 and 8, the intervals hold in 96, 95 and 94 %.
_READINGS: Final = 4.0
_READINGS_IF_HIDDEN: Final = 6.0
_STEPS: Final = 2.0
# A false wave is computed from the last _BEATS beats, but from at least _FEWEST_STEPS steps, and
# from at most _MEMORY_S seconds. There are at most _MOST_READINGS readings in this time (20 ms).
_BEATS: Final = 2.0
_FEWEST_STEPS: Final = 12
_MEMORY_S: Final = 60.0
_MOST_READINGS: Final = 3000
# A longer pause between two readings, in sensor periods, begins a new computation.
_PAUSE: Final = 10.0
# Minimum time between two computations, s. One takes about 0.3 ms.
_COMPUTED_S: Final = 1.0
# Number of steps' periods and false waves that are kept.
_KEPT: Final = 1000
# Range of the power within a step, as a fraction of its mean, if the readings do not show it: that
# of a load between 100 and 400 W. The shares of ``power_intervals`` are fitted for such loads. A
# square wave between 50 and 690 W (1.7 times its mean) exceeds it: the intervals of a counter alone
# then hold in 59 to 80 % of random windows.
_RANGE: Final = 1.2
# Standard error of the noted period, as a fraction: ``JournalRecorder`` notes changes above 1 %.
_PERIOD_ERROR: Final = 0.005
# If an interval of the curve is longer than this many times the usual time between readings,
# readings are missing, or the curve was thinned. Then other errors are larger.
_LONG: Final = 1.5
# The smallest window of a gauge, as a fraction of its period, for which it sees nearly all of the
# time (as ``power_intervals``).
_WHOLE: Final = 0.75


class Beat(NamedTuple):
    """A beat of steps and readings.

    Attributes:
        alias_hz: frequency of the false wave, ``|k / p - m / w|``.
        load_hz: the multiple of the step's frequency that beats, ``k / p``.
    """

    alias_hz: float
    load_hz: float


def slowest_beat(period_s: float, spacing_s: float) -> Beat | None:
    """Return the slowest beat of steps and readings; ``None`` if there is no beat.

    Args:
        period_s: period of the steps.
        spacing_s: time between two readings.

    >>> round(slowest_beat(0.097, 0.1).alias_hz, 3)
    0.309
    >>> slowest_beat(0.7, 0.1) is None
    True
    """
    found = []
    for multiple in _MULTIPLES:
        load_hz = multiple / period_s
        aliased = round(load_hz * spacing_s)
        if aliased:
            found.append(Beat(abs(load_hz - aliased / spacing_s), load_hz))
    beat = min(found, default=None)
    if beat is None or beat.alias_hz * max(_READINGS * spacing_s, _STEPS * period_s) >= 1.0:
        return None
    return beat


def is_hidden(period_s: float, width_s: float) -> bool:
    """Return whether means over ``width_s`` hide a wave with this period.

    Only the first multiple counts. If several periods fit into an interval, the wave is hidden too,
    but the errors that ``power_intervals.errors_of_mean`` states are larger than the wave.
    """
    return abs(width_s / period_s - 1.0) * _READINGS_IF_HIDDEN < 1.0


def hidden_variance(
    range_w: float, period_s: float, length_s: float, joined_s: float | None = None
) -> float:
    """Return the variance of the energy of a window in a wave that means hide, J^2.

    D(t) is the deviation of the cumulative energy from its mean rise. In a square wave whose range
    is R, D rises and falls by R * period / 4, evenly. Its variance is V = (R * period / 4)^2 / 12.
    A window has the error ``D(end) - D(start)``, whose variance is 2 V (1 - cos a), with the phase
    a = 2 pi * length / period: 0 for whole periods, 4 V for half a period.

    If the means are those of consecutive intervals, C is exact between them, so the found energy
    includes D at the ends of the intervals. Seen there, D is a wave with the period of the beat,
    which contributes another term with the same V. A mean over more than the time between readings
    does not show D at all.

    The phase is uncertain because the period is, so the mean of the cosine is ``certain * cos a``.
    What is uncertain counts as half a period, because windows often begin at the same moment of
    a step, and then all of them have the same phase.

    Args:
        range_w: difference between the highest and the lowest power of the wave.
        period_s: period of the wave.
        length_s: length of the window.
        joined_s: width of the intervals of the means; ``None`` if these do not follow each other.
    """
    variance = (range_w * period_s / 4.0) ** 2 / 12.0
    steps = length_s / period_s
    certain = math.exp(-((2.0 * math.pi * _PERIOD_ERROR * steps) ** 2) / 2.0)
    turns = [steps]
    if joined_s is not None:
        turns.append(length_s * abs(1.0 / period_s - 1.0 / joined_s))
    shares = (2.0 - certain * (1.0 + math.cos(2.0 * math.pi * turn)) for turn in turns)
    return 2.0 * variance * sum(shares)


class _Wave(NamedTuple):
    """A false wave.

    Attributes:
        end_s: time up to which readings were used.
        energy_j2: variance of the cumulative energy around a straight line, J^2.
        power_w2: variance of the false power, W^2.
    """

    end_s: float
    energy_j2: float
    power_w2: float


class FalseWave:
    """Computes the energy of the false wave that power readings show in a beat.

    Args:
        sensor: sensor of the readings.
    """

    def __init__(self, sensor: Sensor) -> None:
        self._spacing_s = sensor.period_s or 0.0
        self._lag_s, self._response_s = sensor.lag_s, sensor.response_s
        self._readings: deque[tuple[float, float]] = deque(maxlen=_MOST_READINGS)
        self._last: tuple[float, float] | None = None
        self._waves: deque[_Wave] = deque(maxlen=_KEPT)
        self._period_s = self._span_s = self._highest_hz = self._due_s = 0.0
        self._is_beating = False

    def note_period(self, period_s: float) -> None:
        """Record that the steps have this period from now on."""
        beat = slowest_beat(period_s, self._spacing_s) if self._spacing_s else None
        if beat is None or not self._is_beating:
            self._close_newest()
        self._is_beating, self._period_s = beat is not None, period_s
        if beat is None:
            self._readings.clear()
            self._waves.append(_Wave(math.inf, 0.0, 0.0))
            return
        span_s = min(_BEATS / max(beat.alias_hz, 1e-9), _MEMORY_S)
        self._span_s = max(span_s, _FEWEST_STEPS * period_s)
        self._highest_hz = beat.alias_hz + _PERIOD_ERROR * beat.load_hz

    def _close_newest(self) -> None:
        """End the newest wave at the newest reading; without a wave, add one without energy."""
        if self._last is not None:
            newest = self._waves.pop() if self._waves else _Wave(0.0, 0.0, 0.0)
            self._waves.append(newest._replace(end_s=self._last[0]))
        elif self._waves:
            self._waves.pop()

    def add(self, t_s: float, power_w: float) -> None:
        """Add a power reading."""
        t_s -= self._lag_s
        before, self._last = self._last, (t_s, power_w)
        if not self._is_beating:
            return
        is_new = before is None or t_s - before[0] > _PAUSE * self._spacing_s
        if before is None or is_new or not self._readings:
            self._readings.clear()
            self._readings.append((t_s, 0.0))
            self._due_s = t_s + self._span_s / 2.0
            return
        area_j = (before[1] + power_w) / 2.0 * (t_s - before[0])
        area_j += self._response_s * (power_w - before[1])
        self._readings.append((t_s, self._readings[-1][1] + area_j))
        if t_s >= self._due_s:
            self._due_s = t_s + max(self._span_s / 4.0, _COMPUTED_S)
            self._compute()

    def _compute(self) -> None:
        while self._readings[0][0] < self._readings[-1][0] - self._span_s:
            self._readings.popleft()
        t_s, energy_j = np.array(self._readings).T
        count = int((t_s[-1] - t_s[0]) / self._period_s)
        steps_s = t_s[-1] - self._period_s * np.arange(count, -1.0, -1.0)
        at_steps_j = np.interp(steps_s, t_s, energy_j)
        if count < _FEWEST_STEPS / 2:
            return
        off_s, off_j = steps_s - steps_s.mean(), at_steps_j - at_steps_j.mean()
        left_j = off_j - off_s * ((off_s @ off_j) / (off_s @ off_s))  # of a straight line
        energy_j2 = float(left_j @ left_j) / len(left_j)
        power_w2 = (2.0 * math.pi * self._highest_hz) ** 2 * energy_j2
        self._waves.append(_Wave(float(t_s[-1]), energy_j2, power_w2))

    def variance(self, start_s: float, end_s: float) -> float:
        """Return the variance that the false wave adds to the energy of a window, J^2.

        At most the deviations at both ends add up, if the window has an odd number of half beats. A
        window that is shorter than the beat contains at most the false power times its length.
        """
        start, end = self._at(start_s), self._at(end_s)
        power_w2 = max(start.power_w2, end.power_w2)
        return min(power_w2 * (end_s - start_s) ** 2, 2.0 * (start.energy_j2 + end.energy_j2))

    def deviation_w(self, t_s: float) -> float:
        """Return the standard deviation of the false power at ``t_s``."""
        return math.sqrt(self._at(t_s).power_w2)

    def _at(self, t_s: float) -> _Wave:
        if not self._waves:
            return _Wave(t_s, 0.0, 0.0)
        index = bisect_left(self._waves, t_s, key=lambda wave: wave.end_s)
        return self._waves[min(index, len(self._waves) - 1)]


class Beats:
    """Computes the errors of one device's energies due to beats.

    Args:
        power: the device's channel of power; ``None`` if it has none.
    """

    def __init__(self, power: Channel | None) -> None:
        sensor = (power and power.sensor) or Sensor(name="")
        window_s, spacing_s = sensor.window_s or 0.0, sensor.period_s or 0.0
        is_mean = power is not None and power.kind == "mean"
        is_whole = is_mean or window_s >= _WHOLE * spacing_s > 0.0
        self._averaged_s = max(window_s, spacing_s) if is_whole else 0.0
        self._spacing_s = spacing_s
        self._wave = None if is_whole else FalseWave(sensor)
        self._newest_s = -math.inf
        self._since_s: deque[float] = deque(maxlen=_KEPT)
        self._periods_s: deque[float] = deque(maxlen=_KEPT)

    def note_period(self, period_s: float) -> None:
        """Record that the steps have this period from now on."""
        self._since_s.append(self._newest_s)
        self._periods_s.append(period_s)
        if self._wave is not None:
            self._wave.note_period(period_s)

    def add(self, t_s: float, power_w: float) -> None:
        """Add a power reading."""
        self._newest_s = t_s
        if self._wave is not None:
            self._wave.add(t_s, power_w)

    def reach(self, t_s: float) -> None:
        """Record that the newest reading of the counter is of this moment."""
        self._newest_s = max(self._newest_s, t_s)

    @property
    def is_known(self) -> bool:
        """Whether the period of the steps was noted."""
        return bool(self._periods_s)

    def edge_j(
        self,
        energy: Energy,
        start_s: float,
        end_s: float,
        *,
        knots: CumulativeEnergy,
        counted_s: float,
    ) -> float:
        """Return ``edge_j`` of the energy of a window, including the error due to beats.

        Args:
            energy: the energy, with its errors without beats.
            start_s: start of the window.
            end_s: end of the window.
            knots: cumulative energy of the device.
            counted_s: usual time between two readings of the counter.
        """
        is_counted = energy.method == "counter"
        period_s, length_s = self.period_at(end_s), end_s - start_s
        mean_s = counted_s if is_counted else self._averaged_s
        if period_s is None:
            return energy.edge_j
        if not mean_s:
            return self._with_false_wave(energy, start_s, end_s, period_s)
        if not is_hidden(period_s, mean_s):
            return energy.edge_j
        # The longer one of the curve's intervals at the window's ends, and the power near there.
        width_s = max(knots.width_at(start_s), knots.width_at(end_s))
        near_j, coverage = knots.seen(start_s - width_s, end_s + width_s)
        if near_j is None or width_s > _LONG * mean_s:
            return energy.edge_j
        power_w = near_j / (coverage * (length_s + 2.0 * width_s))
        is_joined = is_counted or width_s >= _WHOLE * mean_s
        joined_s = mean_s if is_joined else None
        range_w = max(_RANGE * power_w, self._shown_range_w(end_s))
        return NORMAL_95 * math.sqrt(hidden_variance(range_w, period_s, length_s, joined_s))

    def _with_false_wave(
        self, energy: Energy, start_s: float, end_s: float, period_s: float
    ) -> float:
        """Return ``edge_j`` if the readings are of single moments."""
        if self._wave is None:
            return energy.edge_j
        variance = self._wave.variance(start_s, end_s)
        if is_hidden(period_s, self._spacing_s):
            range_w = self._shown_range_w(end_s)
            variance += hidden_variance(range_w, period_s, end_s - start_s)
        # The stated errors and those of the beat describe the same deviations, so the larger ones
        # count.
        unstated = variance - energy.stderr_j**2
        return max(energy.edge_j, NORMAL_95 * math.sqrt(max(unstated, 0.0)))

    def _shown_range_w(self, t_s: float) -> float:
        """Return the range of the power in a step, as far as readings of single moments show it.

        In a beat, the readings are of all moments of a step. The range of a square wave is twice
        its standard deviation.
        """
        return 2.0 * self._wave.deviation_w(t_s) if self._wave else 0.0

    def period_at(self, t_s: float) -> float | None:
        """Return the period of the steps at ``t_s``; ``None`` if it was not noted before."""
        index = bisect_right(self._since_s, t_s) - 1
        return self._periods_s[index] if index >= 0 else None
