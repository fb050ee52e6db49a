"""Learns how much the power and the throughput of partitions differ from their predictions."""

import math
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Relative standard deviation of the mean power of a window before it was measured: the sensor
# error of the planner. It counts as this many windows.
_NOISE: Final = 0.007
_NOISE_WINDOWS: Final = 4.0
_LEAST_NOISE: Final = 1e-3
# Windows over which the noise is learned; long, because it is a property of sensor and work.
_NOISE_MEMORY: Final = 60.0
# Change of the power from one window to the next, relative: temperature changes leakage. A GPU that
# becomes 20 K hotter within its time constant of 40 s, with 0.3 % of its static power per kelvin,
# changes by 0.05 % of its power in a second if half of it is static.
_DRIFT: Final = 5e-4
# Standard deviation of the error of a predicted change of power, relative to the change. Held-out
# errors over clocks are 1.3 to 1.6 % where the power halves (powercap.md, section 4b); the form of
# the card may be another one, so that it is taken three times as large.
SLOPE: Final = 0.1
# In the first window at another level, the clock passes through those between: a part of the
# window, and so of the change.
_PASSAGE: Final = 0.1
# A difference of more than this many standard deviations is a change of the load, not noise.
_JUMP: Final = 3.5
_LEAST_GAIN: Final = 0.05


@dataclass(slots=True)
class Noise:
    """Learns the noise of windows from differences of successive windows at one point.

    Attributes:
        variance: of the logarithm of the power of a window.
    """

    variance: float = _NOISE**2
    _count: float = _NOISE_WINDOWS

    def add(self, difference: float) -> None:
        """Add the difference of two logarithms of power."""
        # A jump of the load is no noise; clipped, it counts little.
        half = min(difference**2 / 2.0, 9.0 * self.variance)
        self._count = min(self._count + 1.0, _NOISE_MEMORY)
        self.variance += (half - self.variance) / self._count
        self.variance = max(self.variance, _LEAST_NOISE**2)


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
    """

    idle_w: float
    factors: Array
    covariance: Array
    last_w: float | None = None

    def at(self, predicted_w: Array) -> tuple[Array, Array]:
        """Return mean and variance of the power, in W and W**2, where such powers are predicted."""
        parts = np.stack([np.full_like(predicted_w, self.idle_w), predicted_w - self.idle_w])
        means = self.factors @ parts
        variances = np.einsum("i...,ij,j...->...", parts, self.covariance, parts)
        if self.last_w is not None:
            variances = variances + (SLOPE * (predicted_w - self.last_w)) ** 2
        return means, variances

    def add(self, measured_w: float, predicted_w: float, noise: float) -> None:
        """Add a window.

        Args:
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
        if error_w**2 > _JUMP**2 * (variance + noise_w2):
            self.covariance = self.covariance + np.eye(2) * error_w**2 / float(parts @ parts)
            variance += error_w**2
        gains = self.covariance @ parts / (variance + noise_w2)
        self.factors = self.factors + gains * error_w
        self.covariance = self.covariance - np.outer(gains, parts @ self.covariance)
        self.last_w = predicted_w


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
class Partition:
    """What was measured of a partition.

    Attributes:
        power: its power.
        rate: logarithm of its measured over its predicted throughput.
    """

    power: Power
    rate: Mean


@dataclass(slots=True)
class Estimates:
    """Estimates of all partitions that were measured, and of the others from them.

    Attributes:
        idle_w: predicted power of tenants that wait, W.
        idle_error: its relative standard deviation.
        noise: noise of the power of a window.
        measured: what was measured, by number of the partition.
    """

    idle_w: float
    idle_error: float
    noise: Noise = field(default_factory=Noise)
    measured: dict[int, Partition] = field(default_factory=dict)
    _last: int | None = None

    def common(self) -> tuple[Array, float]:
        """Return factors of the power and bias of the throughput of other partitions.

        They are means over the measured ones and one more without a bias: one measured partition
        tells half of the bias of another one. Power of tenants that wait is the same for all.
        """
        known = list(self.measured.values())
        count = len(known) + 1
        work = (1.0 + math.fsum(one.power.factors[1] for one in known)) / count
        idle = 1.0 if self._last is None else self.measured[self._last].power.factors[0]
        return np.array([idle, work]), math.fsum(one.rate.value for one in known) / count

    def of(self, partition: int, error: float) -> Partition:
        """Return what is known of a partition.

        Args:
            partition: its number.
            error: relative standard deviation of the predicted power of its work.
        """
        found = self.measured.get(partition)
        if found is None:
            factors, rate = self.common()
            idle = self.idle_error**2
            if self._last is not None:
                idle = min(idle, float(self.measured[self._last].power.covariance[0, 0]))
            found = Partition(Power(self.idle_w, factors, np.diag([idle, error**2])), Mean(rate))
        return found

    def add(self, partition: int, known: Partition) -> None:
        """Remember a partition that is measured now."""
        self.measured[partition] = known
        self._last = partition
