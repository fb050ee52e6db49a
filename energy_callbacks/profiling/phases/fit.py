"""One power for each phase, one lag and response of the sensor: the best fit and alternatives."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from energy_callbacks.profiling.phases.exposure import Spans
from energy_callbacks.sensing.estimation.series import Array

# Where lag and response are looked for. Sensors are late by up to a tenth of a second; the response
# of an H200 is 15 to 20 ms; if it is many steps long, no split is possible anyway.
LAGS_S: Final = np.arange(-0.040, 0.1001, 0.005)
RESPONSES_S: Final = np.array([0.001, 0.005, 0.010, 0.015, 0.020, 0.030, 0.050, 0.080])
_LONGEST_RESPONSE_S: Final = 0.15
_NUDGE_S: Final = 1e-4
_ROUNDS: Final = 30
_SHARES: Final = (1.0, 0.5, 0.25, 0.1, 0.03, 0.01)
_DONE: Final = 1e-4
# How well a sensor's lag and response are known beforehand, if they are; fits this far from the
# best in cost (two standard deviations) may be the right ones as well.
SURE_S: Final = 0.003
_CLOSE: Final = 4.0
_VALLEYS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """Readings of a sensor.

    Attributes:
        t_s: when, ascending, (m,).
        power_w: (m,).
        window_s: each is the mean over this time before it, (m,); ``None`` for points.
        lag_s: how late the sensor is thought to be; ``None`` if unknown.
        response_s: its time constant, too.
    """

    t_s: Array
    power_w: Array
    window_s: Array | None = None
    lag_s: float | None = None
    response_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Powers for one lag and response.

    Attributes:
        squares: of what is left of the readings, W^2.
        strangeness: squared distance of lag and response from what is thought of the sensor.
    """

    power_w: Array
    lag_s: float
    response_s: float
    squares: float
    strangeness: float

    def cost(self, noise_w2: float) -> float:
        """The minimised cost: twice the negative logarithm of the likelihood."""
        return self.squares / noise_w2 + self.strangeness


def fit_at(spans: Spans, readings: Readings, lag_s: float, response_s: float) -> Fit:
    """The powers that explain readings best, for one lag and response."""
    columns = spans.exposures(readings.t_s - lag_s, response_s, readings.window_s)
    power_w = _non_negative(columns.T @ columns, columns.T @ readings.power_w)
    rest_w = readings.power_w - columns @ power_w
    strange = [
        (found - thought) / SURE_S
        for found, thought in ((lag_s, readings.lag_s), (response_s, readings.response_s))
        if thought is not None
    ]
    return Fit(
        power_w=power_w,
        lag_s=lag_s,
        response_s=response_s,
        squares=float(rest_w @ rest_w),
        strangeness=sum(one**2 for one in strange),
    )


def fits(spans: Spans, readings: Readings) -> list[Fit]:
    """The best fit, and those beside it that lie in valleys of their own."""
    starts = [*_valleys(spans, readings), *_near(spans, readings)]
    refined = [_refined(spans, readings, start) for start in starts]
    noise_w2 = max(min(fit.squares for fit in refined) / len(readings.t_s), 1e-12)
    refined.sort(key=lambda fit: fit.cost(noise_w2))
    least = refined[0].cost(noise_w2)
    return [fit for fit in refined if fit.cost(noise_w2) - least < _CLOSE]


def _near(spans: Spans, readings: Readings) -> list[Fit]:
    if readings.lag_s is None or readings.response_s is None:
        return []
    return [
        fit_at(spans, readings, readings.lag_s + late_s, readings.response_s + slow_s)
        for late_s in (-SURE_S, 0.0, SURE_S)
        for slow_s in (-SURE_S, 0.0, SURE_S)
    ]


def _valleys(spans: Spans, readings: Readings) -> list[Fit]:
    """Where the cost is least of all around, over all lags and responses."""
    grid = [
        [fit_at(spans, readings, lag_s, response_s) for response_s in RESPONSES_S]
        for lag_s in LAGS_S
    ]
    noise_w2 = max(min(fit.squares for row in grid for fit in row) / len(readings.t_s), 1e-12)
    costs = np.array([[fit.cost(noise_w2) for fit in row] for row in grid])
    around = np.pad(costs, 1, constant_values=np.inf)
    beside = [
        around[1 + down : 1 + down + costs.shape[0], 1 + right : 1 + right + costs.shape[1]]
        for down in (-1, 0, 1)
        for right in (-1, 0, 1)
        if (down, right) != (0, 0)
    ]
    places = np.argwhere(costs <= np.minimum.reduce(beside)).tolist()
    bottoms = sorted(places, key=lambda place: costs[*place])[:_VALLEYS]
    return [grid[row][column] for row, column in bottoms]


def _refined(spans: Spans, readings: Readings, best: Fit) -> Fit:
    """Gauss and Newton's steps to the bottom of a valley."""
    for _ in range(_ROUNDS):
        noise_w2 = max(best.squares / len(readings.t_s), 1e-12)
        jacobian, rest_w = jacobian_of(spans, readings, best)
        step = _step(jacobian, rest_w, readings, best, noise_w2)
        better = None
        for share in _SHARES:
            lag_s = float(np.clip(best.lag_s + share * step[0], LAGS_S[0], LAGS_S[-1]))
            response_s = float(
                np.clip(best.response_s + share * step[1], _NUDGE_S, _LONGEST_RESPONSE_S)
            )
            tried = fit_at(spans, readings, lag_s, response_s)
            if tried.cost(noise_w2) < best.cost(noise_w2):
                better = tried
                break
        if better is None or best.cost(noise_w2) - better.cost(noise_w2) < _DONE:
            return better or best
        best = better
    return best


def jacobian_of(spans: Spans, readings: Readings, fit: Fit) -> tuple[Array, Array]:
    """How readings change with each power, with lag and with response; and what is left of them."""

    def columns(lag_s: float, response_s: float) -> Array:
        return spans.exposures(readings.t_s - lag_s, response_s, readings.window_s)

    lag_s, response_s = fit.lag_s, fit.response_s
    here = columns(lag_s, response_s)
    by_lag = columns(lag_s + _NUDGE_S, response_s) - columns(lag_s - _NUDGE_S, response_s)
    slower, faster = response_s + _NUDGE_S, max(response_s - _NUDGE_S, _NUDGE_S / 10.0)
    by_response = (columns(lag_s, slower) - columns(lag_s, faster)) / (slower - faster)
    slopes = [by_lag @ fit.power_w / (2.0 * _NUDGE_S), by_response @ fit.power_w]
    rest_w = readings.power_w - here @ fit.power_w
    return np.column_stack([here, *slopes]), rest_w


def _step(jacobian: Array, rest_w: Array, readings: Readings, fit: Fit, noise_w2: float) -> Array:
    """Gauss and Newton's step of lag and response."""
    rows, target = beforehand(jacobian.shape[1], readings, fit, noise_w2)
    unit, scale = normalised(np.concatenate([jacobian, rows]))
    solved = np.linalg.lstsq(unit, np.concatenate([rest_w, target]), rcond=1e-12)[0] / scale
    step: Array = solved[-2:]
    return step


def beforehand(columns: int, readings: Readings, fit: Fit, noise_w2: float) -> tuple[Array, Array]:
    """Prior knowledge of lag and response, as rows like those of readings."""
    weight = math.sqrt(noise_w2) / SURE_S
    both = ((-2, fit.lag_s, readings.lag_s), (-1, fit.response_s, readings.response_s))
    rows, target = np.zeros((2, columns)), np.zeros(2)
    for number, (column, found, thought) in enumerate(both):
        if thought is not None:
            rows[number, column] = weight
            target[number] = weight * (thought - found)
    return rows, target


def normalised(columns: Array) -> tuple[Array, Array]:
    """Columns of length one, and how long they were."""
    scale = np.linalg.norm(columns, axis=0)
    scale[scale == 0.0] = 1.0
    return columns / scale, scale


def _non_negative(gram: Array, target: Array) -> Array:
    """The powers, none below zero, that minimise the squares.

    A power that would be negative is held at zero and the others are solved again; with a handful
    of phases that ends at once.
    """
    free = np.ones(len(target), dtype=bool)
    while free.any():
        solved = np.zeros(len(target))
        solved[free] = np.linalg.lstsq(gram[np.ix_(free, free)], target[free], rcond=1e-13)[0]
        if (solved >= 0.0).all():
            return solved
        free &= solved > 0.0
    return np.zeros(len(target))
