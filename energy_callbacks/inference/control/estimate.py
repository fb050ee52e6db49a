"""Learns how much the power and the throughput of partitions differ from their predictions."""

import math
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from energy_callbacks.inference.control.candidates import Array, Candidates

# Relative standard deviation of the mean power of a window before it was measured: the sensor
# error of the planner. It counts as this many windows.
_NOISE: Final = 0.007
# The same if tenants pause: batches begin and end at the edges of a window. On an H100, it was 1.9
# to 3.5 % (docs/serving.md).
_PAUSING_NOISE: Final = 0.03
_NOISE_WINDOWS: Final = 4.0
_LEAST_NOISE: Final = 1e-3
# Mean size of a normal variable, in standard deviations.
_MEAN_SIZE: Final = math.sqrt(2.0 / math.pi)
# Windows over which the noise is learned; long, because it is a property of sensor and work.
_NOISE_MEMORY: Final = 60.0
# Change of the power from one window to the next, relative: temperature changes leakage. A GPU that
# becomes 20 K hotter within its time constant of 40 s, with 0.3 % of its static power per kelvin,
# changes by 0.05 % of its power in a second if half of it is static.
_DRIFT: Final = 5e-4
# Standard deviation of the error of a predicted change of power, relative to the change. Held-out
# errors over clocks are 1.3 to 1.6 % where the power halves, on measured curves. The form of the
# card may be another one, so that a larger value is taken.
SLOPE: Final = 0.15
# In the first window at another level, the clock passes through those between: a part of the
# window, and so of the change.
_PASSAGE: Final = 0.1
# A difference of more than this many standard deviations is a change of the load, not noise.
_JUMP: Final = 3.5
_LEAST_GAIN: Final = 0.05
# Windows after which the power that was measured at a level is no longer relied on: temperatures
# have changed (time constants of GPUs are about 40 s).
_FORGET: Final = 60
# Distance between partitions over which their biases differ: the length of the predictor's own
# residual before it has seen data, in its units.
_LENGTH: Final = 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Difference between the measured and the expected power of a window.

    Attributes:
        deviations: its size, in the standard deviations that were expected of it.
        noise: part of the noise of windows in the expected variance; the rest is the estimate's.
    """

    deviations: float
    noise: float


@dataclass(slots=True)
class Noise:
    """Learns the noise of windows from their differences from the expected power.

    The mean size of a difference is learned, not its square, so that a start that was too high is
    forgotten in fewer windows.

    Attributes:
        deviation: standard deviation of the power of a window, relative.
    """

    deviation: float = _NOISE
    _count: float = _NOISE_WINDOWS

    @property
    def variance(self) -> float:
        """Variance of the power of a window, relative."""
        return self.deviation**2

    def add(self, one: Difference) -> None:
        """Add a window."""
        # A jump of the load is no noise; clipped, it counts little.
        ratio = min(one.deviations, 3.0) / _MEAN_SIZE
        self._count = min(self._count + one.noise, _NOISE_MEMORY)
        self.deviation *= 1.0 + one.noise * (ratio - 1.0) / self._count
        self.deviation = max(self.deviation, _LEAST_NOISE)


@dataclass(slots=True)
class Mean:
    """A mean that forgets.

    Attributes:
        value: the mean.
        windows: number of values.
    """

    value: float
    windows: int = 0

    def add(self, value: float) -> None:
        """Add a value; the first one replaces the start."""
        self.windows += 1
        self.value += max(1.0 / self.windows, _LEAST_GAIN) * (value - self.value)


@dataclass(slots=True)
class Power:
    """Estimates the power of a partition at all levels: a Kalman filter of two factors.

    ::

        power = factors[0] * idle_w + factors[1] * (predicted - idle_w)

    Attributes:
        idle_w: predicted power of tenants that wait, W.
        factors: (2,) measured over predicted power, of tenants that wait and of their work.
        covariance: (2, 2) of the factors.
        last_w: predicted power of the last window, W; ``None`` before the first.
        seen: measured power in W at each level, and the number of its last window.
        windows: number of windows.
    """

    idle_w: float
    factors: Array
    covariance: Array
    last_w: float | None = None
    seen: dict[int, tuple[Mean, int]] = field(default_factory=dict)
    windows: int = 0

    def at(self, predicted_w: Array) -> tuple[Array, Array]:
        """Return mean and variance of the power, in W and W**2, where such powers are predicted."""
        parts = np.stack([np.full_like(predicted_w, self.idle_w), predicted_w - self.idle_w])
        means = self.factors @ parts
        variances = np.einsum("i...,ij,j...->...", parts, self.covariance, parts)
        if self.last_w is not None:
            variances = variances + (SLOPE * (predicted_w - self.last_w)) ** 2
        return means, variances

    def lowest_above(self, cap_w: float, z: float, noises: Array) -> int | None:
        """Return the lowest level whose measured power is too close to a cap; ``None`` if none is.

        Args:
            cap_w: the cap, W.
            z: standard deviations of a window by which it must be below the cap.
            noises: relative variance of the power of a window at each level.
        """
        above = [
            level
            for level, (mean, last) in self.seen.items()
            if self.windows - last < _FORGET
            and mean.value * (1.0 + z * math.sqrt(noises[level] * (1.0 + 1.0 / mean.windows)))
            > cap_w
        ]
        return min(above, default=None)

    def add(self, level: int, measured_w: float, predicted_w: float, noise: float) -> Difference:
        """Add a window, and return its difference from what was expected.

        Args:
            level: its level.
            measured_w: its mean power, W.
            predicted_w: the predicted power, W.
            noise: relative variance of the power of a window.
        """
        parts = np.array([self.idle_w, predicted_w - self.idle_w])
        moved_w = predicted_w - (predicted_w if self.last_w is None else self.last_w)
        # What the form does not describe is an error of both factors.
        form = (SLOPE * moved_w) ** 2 + (_DRIFT * measured_w) ** 2
        self.covariance = self.covariance + np.eye(2) * form / float(parts @ parts)
        noise_w2 = noise * measured_w**2 + (_PASSAGE * moved_w) ** 2
        error_w = measured_w - float(self.factors @ parts)
        variance = float(parts @ self.covariance @ parts)
        expected = variance + noise_w2
        difference = Difference(
            deviations=abs(error_w) / math.sqrt(expected), noise=noise * measured_w**2 / expected
        )
        if difference.deviations > _JUMP:
            self.covariance = self.covariance + np.eye(2) * error_w**2 / float(parts @ parts)
            variance += error_w**2
        gains = self.covariance @ parts / (variance + noise_w2)
        self.factors = self.factors + gains * error_w
        self.covariance = self.covariance - np.outer(gains, parts @ self.covariance)
        self.last_w = predicted_w
        self._see(level, measured_w, noise)
        return difference

    def _see(self, level: int, measured_w: float, noise: float) -> None:
        """Remember the power at a level; if it is another one than before, forget all levels."""
        self.windows += 1
        mean, _ = self.seen.get(level, (Mean(0.0), 0))
        if mean.windows and abs(measured_w / mean.value - 1.0) > 2.0 * _JUMP * math.sqrt(noise):
            self.seen.clear()
            mean = Mean(0.0)
        mean.add(measured_w)
        self.seen[level] = mean, self.windows


@dataclass(slots=True)
class Partition:
    """What was measured of a partition.

    Attributes:
        power: its power.
        rate: logarithm of its measured over its predicted throughput.
    """

    power: Power
    rate: Mean


class Estimates:
    """What is known of all partitions.

    Args:
        table: partitions with their predictions.

    Attributes:
        table: the same; partitions may be added at its end.
        whole: noise of the power of a window in which tenants work all the time.
        pausing: the same if they pause.
        measured: what was measured, by number of the partition.
    """

    def __init__(self, table: Candidates) -> None:
        self.whole = Noise()
        self.pausing = Noise(_PAUSING_NOISE)
        self.measured: dict[int, Partition] = {}
        self.table = table
        self._is_whole = np.array([level.duty == 1.0 for level in table.levels])
        self._last: int | None = None

    def noise(self, level: int) -> Noise:
        """Return the noise at a level."""
        return self.whole if self._is_whole[level] else self.pausing

    @property
    def variances(self) -> Array:
        """Relative variances of the power of a window at all levels, (levels,)."""
        return np.where(self._is_whole, self.whole.variance, self.pausing.variance)

    def add(self, partition: int, known: Partition) -> None:
        """Remember a partition that is measured now."""
        self.measured[partition] = known
        self._last = partition

    def of(self, partition: int) -> Partition:
        """Return what is known of a partition; it is new if it was not measured."""
        if partition in self.measured:
            return self.measured[partition]
        factors, biases, errors = self.everywhere()
        idle = self.table.idle_error**2
        if self._last is not None:
            idle = min(idle, float(self.measured[self._last].power.covariance[0, 0]))
        error = float(self.table.power_errors[partition] * errors[partition])
        covariance = np.diag([idle, error**2])
        power = Power(self.table.idle_w, factors[partition], covariance)
        return Partition(power, Mean(float(biases[partition])))

    def everywhere(self) -> tuple[Array, Array, Array]:
        """Return what is expected of all partitions.

        Returns:
            (partitions, 2) factors of the power, (partitions,) biases of the throughput, and
            (partitions,) standard deviations relative to those of the predictor.

        Power is expected to differ from its prediction as that of the nearest measured partition.
        Of its bias of the throughput, only a part is expected, their correlation, which is 1/2 far
        away and 1 at the same place: so that a partition that was slower than predicted is replaced
        by one of another kind. Tenants that wait need the same power everywhere.
        """
        count = len(self.table.partitions)
        factors, biases, errors = np.ones((count, 2)), np.zeros(count), np.ones(count)
        if not self.measured:
            return factors, biases, errors
        places = np.array(list(self.measured))
        features = self.table.features
        distances = np.linalg.norm(features[:, None] - features[places], axis=2)
        nearest = distances.argmin(axis=1)
        alike = 0.5 + 0.5 * np.exp(-((distances.min(axis=1) / _LENGTH) ** 2) / 2.0)
        known = [self.measured[at] for at in places.tolist()]
        work = np.array([one.power.factors[1] for one in known])
        if self._last is not None:
            factors[:, 0] = self.measured[self._last].power.factors[0]
        factors[:, 1] = work[nearest]
        biases = alike * np.array([one.rate.value for one in known])[nearest]
        return factors, biases, np.sqrt(1.0 - alike**2)
