"""Steps whose power is of another form than the fit of ``StepPhases`` assumes."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.signal import lfilter

from energy_callbacks.profiling.phases.exposure import Spans
from energy_callbacks.profiling.phases.fit import Readings

# Time resolution of the simulated power: much finer than the sensor and the offsets of edges.
GRID_S: Final = 2.5e-4
SENSOR_S: Final = 0.020
LAG_S, RESPONSE_S = 0.005, 0.015
# Largest difference between the true lag and ``LAG_S``.
LAG_OFF_S: Final = 0.003
# Largest random error of a reading.
READING_W: Final = 8.0
UNEVEN: Final = 0.03
DURATION_S: Final = 60.0
# Changes of power within a phase, from 0 at its start to 1 at its end: a ramp, a step, and a decay.
SHAPES: Final = (
    lambda part: 2.0 * part - 1.0,
    lambda part: np.sign(part - 0.6),
    lambda part: 2.0 * np.exp(-5.0 * part) - 0.4,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The power of a step, and how it departs from one power per phase.

    Attributes:
        power_w: mean power of each phase.
        shares: share of each phase in the time of a step.
        ramp: largest relative change of power from the middle of a phase to its end.
        off_s: smallest and largest error of the reported edges; each kind of edge has one error.
        noise: standard deviation of correlated noise, as a share of the power.
        is_sensor_noise: whether the noise is one of the sensor and not of the power.
    """

    power_w: tuple[float, ...]
    shares: tuple[float, ...]
    ramp: float = 0.0
    off_s: tuple[float, float] = (0.0, 0.0)
    noise: float = 0.0
    is_sensor_noise: bool = False


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A training, and the readings of its sensor.

    Attributes:
        truth_j: energy of each phase.
    """

    spans: Spans
    readings: Readings
    steps: int
    truth_j: np.ndarray


def trial(load: Load, period_s: float, jitter: float, rng: np.random.Generator) -> Trial:
    """Draw one trial of a load."""
    count = len(load.power_w)
    shares = np.array(load.shares) * rng.uniform(0.8, 1.2, count)
    shares /= shares.sum()
    mean_w = np.array(load.power_w) * rng.uniform(0.8, 1.2, count)
    # Edges at multiples of the grid, the same in each step, would shift the truth.
    period_s *= rng.uniform(0.97, 1.03)
    steps = math.ceil(DURATION_S / period_s)
    stretch = np.maximum(1.0 + jitter * rng.standard_normal((steps, count)), 0.2)
    widths_s = (period_s * shares * stretch).ravel()
    edges_s = np.concatenate(([0.0], np.cumsum(widths_s)))
    grid_s = np.arange(0.5, edges_s[-1] / GRID_S) * GRID_S
    at = np.minimum(np.searchsorted(edges_s, grid_s, "right") - 1, steps * count - 1)
    label = at % count
    part = (grid_s - edges_s[at]) / widths_s[at]
    ramps = [load.ramp * rng.uniform(-1.0, 1.0) * SHAPES[rng.integers(3)](part) for _ in mean_w]
    uneven = 1.0 + UNEVEN * rng.standard_normal(steps * count)
    power_w = mean_w[label] * (1.0 + np.choose(label, ramps)) * uneven[at]
    noise = load.noise * _correlated(len(grid_s), rng)
    if not load.is_sensor_noise:
        power_w = power_w * np.maximum(1.0 + noise, 0.0)
    kept = math.exp(-GRID_S / RESPONSE_S)
    seen_w, _ = lfilter([1.0 - kept], [1.0, -kept], power_w, zi=[kept * power_w[0]])
    if load.is_sensor_noise:
        seen_w = seen_w + noise * power_w.mean()
    t_s = np.cumsum(rng.uniform(0.8, 1.2, int(edges_s[-1] / SENSOR_S) - 8)) * SENSOR_S
    lag_s = LAG_S + rng.uniform(-LAG_OFF_S, LAG_OFF_S)
    read_w = np.interp(t_s - lag_s, grid_s, seen_w) + rng.uniform(-READING_W, READING_W, len(t_s))
    off_s = rng.uniform(*load.off_s, count) * rng.choice([-1.0, 1.0], count)
    reported_s = np.maximum.accumulate(edges_s + np.append(np.tile(off_s, steps), 0.0))
    return Trial(
        spans=Spans(edges_s=reported_s, labels=np.tile(np.arange(count), steps), count=count),
        readings=Readings(t_s=t_s, power_w=np.round(read_w), lag_s=LAG_S, response_s=RESPONSE_S),
        steps=steps,
        truth_j=np.bincount(label, power_w, count) * GRID_S,
    )


def _correlated(count: int, rng: np.random.Generator) -> np.ndarray:
    """Return noise of variance 1 whose correlation time is drawn from 0.1 to 3 s."""
    kept = math.exp(-GRID_S / (0.1 * 30.0 ** rng.uniform()))
    start = kept * rng.standard_normal()
    made, _ = lfilter(
        [math.sqrt(1.0 - kept**2)], [1.0, -kept], rng.standard_normal(count), zi=[start]
    )
    noise: np.ndarray = made
    return noise
