"""Fits one power per phase of a step, and a sensor's lag and response, to the sensor's readings.

Power may change within a phase. For example, a convolutional network draws more power at the end of
its forward pass than at the beginning, and less at the end of its backward pass. A fit with one
power per phase then finds a wrong lag, a wrong response and wrong powers. This is noticed only if
lag and response of the sensor are known. If they are, phases can be cut into pieces, each with a
power of its own.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from energy_callbacks.profiling.phases.exposure import Numbers, Spans
from energy_callbacks.sensing.estimation.series import Array

# Values of lag and response to try. Sensors lag by up to 0.1 s. The response of an H200 is 15 to
# 20 ms. With much longer responses, phases cannot be separated, so these are not tried.
LAGS_S: Final = np.arange(-0.040, 0.1001, 0.005)
RESPONSES_S: Final = np.array([0.001, 0.005, 0.010, 0.015, 0.020, 0.030, 0.050, 0.080])
BOUNDS_S: Final = ((LAGS_S[0], LAGS_S[-1]), (1e-4, 0.15))
# Uncertainty (standard deviation) of a sensor's known lag, and of its known response.
PRIOR_S: Final = 0.003
# A fit may be the true one if its cost exceeds the lowest cost by less than this number. If lag or
# response is n standard deviations from its best value, the cost is higher by n squared; 4 allows
# two standard deviations.
_CLOSE: Final = 4.0
_DONE: Final = 1e-4
_MOST_MINIMA: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """Readings of a power sensor.

    Attributes:
        t_s: times of the readings, ascending, (m,).
        power_w: power, (m,).
        window_s: length of the time before each reading over which its power is averaged, (m,);
            ``None`` if readings are instantaneous.
        lag_s: known delay of the sensor; ``None`` if unknown.
        response_s: known time constant of the sensor; ``None`` if unknown.
    """

    t_s: Array
    power_w: Array
    window_s: Array | None = None
    lag_s: float | None = None
    response_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The fitted powers for one lag and one response.

    Attributes:
        power_w: power of each phase or piece; labels of the spans are indices into it.
        lag_s: delay of the sensor.
        response_s: time constant of the sensor.
        distance: squared distance of lag and response from their known values, in units of
            ``PRIOR_S``; 0 if they are unknown.
        cost: twice the negative log-likelihood: ``m log(variance of the residuals) + distance``.
    """

    power_w: Array
    lag_s: float
    response_s: float
    distance: float
    cost: float


def fit_at(spans: Spans, readings: Readings, lag_s: float, response_s: float) -> Fit:
    """Return the non-negative powers that fit the readings best, for one lag and one response."""
    from scipy.optimize import nnls

    columns = spans.exposures(readings.t_s - lag_s, response_s, readings.window_s)
    power_w, norm_w = nnls(columns, readings.power_w)
    count = len(readings.t_s)
    pairs = ((lag_s, readings.lag_s), (response_s, readings.response_s))
    distance = sum(((value - prior) / PRIOR_S) ** 2 for value, prior in pairs if prior is not None)
    return Fit(
        power_w=power_w,
        lag_s=lag_s,
        response_s=response_s,
        distance=distance,
        cost=count * math.log(max(norm_w**2 / count, 1e-12)) + distance,
    )


def fits(spans: Spans, readings: Readings) -> list[Fit]:
    """Return the best fit, followed by other local minima with nearly the same cost."""
    from scipy.optimize import minimize

    def fit(at: Array) -> Fit:
        return fit_at(spans, readings, float(at[0]), float(at[1]))

    simplex = PRIOR_S * np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    minima = []
    for start in _starts(fit, readings):
        options = {"initial_simplex": start + simplex, "fatol": _DONE, "xatol": PRIOR_S}
        search = {"method": "Nelder-Mead", "bounds": BOUNDS_S, "options": options}
        minima.append(fit(minimize(lambda at: fit(at).cost, start, **search).x))
    minima.sort(key=lambda fit: fit.cost)
    return [fit for fit in minima if fit.cost - minima[0].cost < _CLOSE]


def _starts(fit: Callable[[Array], Fit], readings: Readings) -> Array:
    """Return start values of (lag, response): minima on a grid, and on one of known values."""
    starts = _minima(fit, LAGS_S, RESPONSES_S)
    if readings.lag_s is None or readings.response_s is None:
        return starts
    known = (readings.lag_s, readings.response_s)
    near = (
        np.clip(value + PRIOR_S * np.array([-1.0, 0.0, 1.0]), *bounds)
        for value, bounds in zip(known, BOUNDS_S, strict=True)
    )
    return np.concatenate([starts, _minima(fit, *near)])


def _minima(fit: Callable[[Array], Fit], lags_s: Array, responses_s: Array) -> Array:
    """Return the lowest local minima on a grid of lags and responses, (n, 2), best first."""
    from scipy.ndimage import minimum_filter

    grid = np.stack(np.meshgrid(lags_s, responses_s, indexing="ij"), axis=-1).reshape(-1, 2)
    costs = np.array([fit(at).cost for at in grid])
    lowest_around = minimum_filter(costs.reshape(len(lags_s), -1), 3, mode="nearest").ravel()
    minima = np.flatnonzero(costs <= lowest_around)
    minima = minima[np.argsort(costs[minima], kind="stable")][:_MOST_MINIMA]
    found: Array = grid[minima]
    return found


def cut(spans: Spans, counts: tuple[int, ...]) -> tuple[Spans, Numbers]:
    """Cut each occurrence of phase ``p`` into ``counts[p]`` pieces of equal length.

    Returns:
        Spans whose labels are pieces, and the phase of each piece.
    """
    first = np.concatenate(([0], np.cumsum(counts)))
    repeats = np.where(spans.labels >= 0, np.array(counts)[spans.labels], 1)
    starts = np.repeat(np.cumsum(repeats) - repeats, repeats)
    number = np.arange(int(repeats.sum())) - starts
    widths_s = np.repeat(np.diff(spans.edges_s) / repeats, repeats)
    edges_s = np.repeat(spans.edges_s[:-1], repeats) + number * widths_s
    labels = np.repeat(np.where(spans.labels >= 0, first[spans.labels], -1), repeats)
    labels = np.where(labels >= 0, labels + number, -1)
    pieces = Spans(
        edges_s=np.append(edges_s, spans.edges_s[-1]), labels=labels, count=int(first[-1])
    )
    return pieces, np.repeat(np.arange(spans.count), counts)
