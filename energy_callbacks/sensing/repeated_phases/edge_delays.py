"""Delays of a device behind the edges of its host, as weights for the grid of ``PhaseSums``.

A candidate is a distribution of delays, uniform with a mean and a width (the blur), and a response
of the sensor. The weights of a candidate say how its exposures follow from those of the grid, which
are for the assumed response; they sum to 1 and may be negative.

A different response is a distribution of delays, too. What a filter with time constant r shows of a
jump follows from what one with time constant a shows::

    R_r(t) = a/r R_a(t) + (1 - a/r) * mean of R_a(t - u), u exponentially distributed with mean r

(Their transfer functions satisfy 1/(1+rs) = 1/(1+as) * [a/r + (1 - a/r) * 1/(1+rs)].) The weights
of the delays u are negative for a sensor that is faster than assumed.
"""

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from energy_callbacks.core.yielding import pieces
from energy_callbacks.sensing.estimation.series import Array

_FIRST_S: Final = -0.02
_LAST_S: Final = 0.225
_FINE_S: Final = 0.0025
_COARSE_S: Final = 0.005


def delays_s(response_s: float) -> Array:
    """Return the grid of delays from the host's edge to the edge in the readings, s, (D,).

    Negative ones are for sensors whose lag is smaller than assumed. The host of an H200 was 109 ms
    ahead of the card (median, docs/h200.md). The grid is finer for sensors without a response time,
    because their readings change more suddenly, and interpolation between delays is less exact.

    Args:
        response_s: assumed response time of the sensor; 0 for none.
    """
    step_s = _COARSE_S if response_s else _FINE_S
    last_s = _LAST_S + _LATEST * response_s
    return np.arange(_FIRST_S, last_s + step_s / 2.0, step_s)


_RESPONSES: Final = np.linspace(0.67, 1.33, 5)
"""True responses, as shares of the assumed one.

That of an H200 was measured as 8 to 20 ms instead of 15 ms (docs/h200.md).
"""

_RESPONSE_STEP: Final = 0.33
_BLURS_S: Final = np.array([0.0, 0.015, 0.035, 0.07, 0.12])
# Before any reading, delays and blurs are taken as exponentially distributed with these means, s.
# What is left of a measured delay are the lag of the sensor and the start of the first kernel, at
# most _MEASURED_LAST_S: a later change of power is not the edge, but a part of the phase.
_TYPICAL_DELAY_S: Final = 0.1
_TYPICAL_BLUR_S: Final = 0.04
_MEASURED_DELAY_S: Final = 0.005
_MEASURED_BLUR_S: Final = 0.002
_MEASURED_LAST_S: Final = 0.02
# A device does not change before its host. Edges seem to be earlier by at most this, s, if the lag
# of the sensor is smaller than assumed. This limits the differences between delays.
_EARLY_S: Final = 0.02
# Four polynomials in the place between the second and the third of four points of a grid, for cubic
# interpolation: coefficients of the powers 0 to 3.
_CUBIC: Final = np.array([[0, -2, 3, -1], [6, -3, -6, 3], [0, 6, 3, -3], [0, -1, 0, 1]]) / 6.0
# A candidate that ends this near to the longest delay, s, may stand for longer delays.
_BORDER_S: Final = 0.01
# A uniform distribution is at least this wide, in steps of the grid.
_NARROWEST: Final = 1e-4
# Number of candidates whose weights are computed at once: this takes less than 1 ms.
_AT_ONCE: Final = 240
# After this many response times, the grid has no further delays for slower responses.
_LATEST: Final = 4.0
# Places and weights by which integrals over one step of the grid are computed (Gauss-Legendre).
# NumPy's ``leggauss`` would start threads that are busy for 40 ms.
_INSIDE: Final = (math.sqrt(0.6) * np.array([-1.0, 0.0, 1.0]) + 1.0) / 2.0
_INSIDE_WEIGHTS: Final = np.array([5.0, 8.0, 5.0]) / 18.0
# In each round, candidates with this number of delays are refined, and this number for each delay.
_REFINED_DELAYS: Final = 12
_REFINED_PER_DELAY: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Distributions of delays, with responses, (n,) each.

    Attributes:
        response: true response as a share of the assumed one.
        delay_s: mean delay.
        blur_s: width of the distribution.
        measure: part of the parameter space that the candidate stands for.
        shortest_s: blurs are at most this, because edges keep their order.
        response_s: assumed response time of the sensor; 0 for none.
        is_measured: whether the delays were measured, and the edges are those of the device.
        rounds: number of calls of ``finer``.
    """

    response: Array
    delay_s: Array
    blur_s: Array
    measure: Array
    shortest_s: float
    response_s: float
    is_measured: bool = False
    rounds: int = 0

    @property
    def grid_s(self) -> Array:
        """Delays of the grid, (D,)."""
        return delays_s(self.response_s)

    @property
    def longest_blur_s(self) -> Array:
        """Largest width that may be in truth, (n,): infinite if the grid ends where it would be."""
        is_cut = self.delay_s + self.blur_s / 2.0 > _LAST_S - _BORDER_S
        return np.where(is_cut, np.inf, self.blur_s)

    @property
    def _step_s(self) -> float:
        return float(self.grid_s[1] - self.grid_s[0])

    @property
    def prior(self) -> Array:
        """Cost before any reading: twice the negative logarithm of the probability."""
        of_delay_s = _MEASURED_DELAY_S if self.is_measured else _TYPICAL_DELAY_S
        of_blur_s = _MEASURED_BLUR_S if self.is_measured else _TYPICAL_BLUR_S
        return 2.0 * (np.maximum(self.delay_s, 0.0) / of_delay_s + self.blur_s / of_blur_s)

    @property
    def weights(self) -> Array:
        """Weights of the delays of the grid, (n, D)."""
        # Candidates that differ by the response alone have the same distribution of delays.
        both_s, places = np.unique(self.delay_s + 1j * self.blur_s, return_inverse=True)
        uniform = np.concatenate([self._uniform(part) for part in pieces(both_s, _AT_ONCE)])
        weights = np.empty((len(places), len(self.grid_s)))
        for part in pieces(np.arange(len(places)), _AT_ONCE):
            weights[part] = self._mixed(uniform[places[part]], self.response[part])
        return weights

    def _uniform(self, both_s: NDArray[np.complex128]) -> Array:
        """Return the weights of uniform distributions: means + 1j * widths, (n,)."""
        middle = (both_s.real - _FIRST_S) / self._step_s
        half = np.maximum(both_s.imag / self._step_s, _NARROWEST) / 2.0
        return _uniform(middle - half, middle + half, len(self.grid_s))

    def _mixed(self, weights: Array, response: Array) -> Array:
        """Return weights for other responses, (n, D)."""
        if not self.response_s:
            return weights
        weights = np.ascontiguousarray(weights.T)
        later = _later(weights, self._step_s / (response * self.response_s))
        mixed: Array = later + (weights - later) / response
        return mixed.T

    def shares(self, cost: Array) -> Array:
        """Return the probability of each candidate, (n,).

        Args:
            cost: twice the negative logarithm of the likelihood of the readings, (n,).
        """
        total = cost + self.prior
        likely = np.exp((total.min() - total) / 2.0) * self.measure
        shares: Array = likely / likely.sum()
        return shares

    def finer(self, cost: Array) -> "Candidates":
        """Return candidates around those with the lowest cost, at a third of their distances.

        Costs between two candidates may be much lower than theirs, so the number of refined ones
        does not depend on their cost, and they have different delays: if phases are short and
        regular, delays that differ by a period fit nearly as well.
        """
        kept = self._best(cost + self.prior)
        step = 1.0 / 3.0 ** (self.rounds + 1)
        thirds = step * np.array([-1.0, 0.0, 1.0])
        response_steps = _RESPONSE_STEP / 2.0 * thirds if self.response_s else np.zeros(1)
        steps = np.stack(np.meshgrid(response_steps, _FINE_S * thirds, thirds, indexing="ij"), -1)
        steps = steps.reshape(-1, 3)
        blur_s = self.blur_s[kept]
        widths_s = np.interp(blur_s, _BLURS_S, np.gradient(_BLURS_S))
        return replace(
            self,
            response=(self.response[kept][:, None] + steps[:, 0]).ravel(),
            delay_s=(self.delay_s[kept][:, None] + steps[:, 1]).ravel(),
            blur_s=np.abs(blur_s[:, None] + widths_s[:, None] * steps[:, 2]).ravel(),
            measure=np.repeat(self.measure[kept], len(steps)),
            rounds=self.rounds + 1,
        ).possible()

    def _best(self, cost: Array) -> NDArray[np.intp]:
        """Return the places of the candidates to refine."""
        by_cost = np.argsort(cost, kind="stable")
        groups = np.round((self.delay_s[by_cost] - _FIRST_S) / _FINE_S)
        firsts = np.sort(np.unique(groups, return_index=True)[1])[:_REFINED_DELAYS]
        alike = [(groups == groups[first]).nonzero()[0] for first in firsts.tolist()]
        refined = np.concatenate([one[:_REFINED_PER_DELAY] for one in alike])
        return np.asarray(by_cost[refined])

    def possible(self) -> "Candidates":
        """Return the candidates without impossible ones."""
        limit_s = np.minimum(2.0 * (self.delay_s + _EARLY_S), self.shortest_s)
        last_s = _MEASURED_LAST_S if self.is_measured else _LAST_S
        is_inside = (self.delay_s >= _FIRST_S) & (self.delay_s + self.blur_s / 2 <= last_s)
        margin = _RESPONSE_STEP / 3.0
        is_inside &= self.response >= _RESPONSES[0] - margin
        is_inside &= self.response <= _RESPONSES[-1] + margin
        used = is_inside & (self.blur_s <= limit_s + 1e-9)
        return replace(
            self,
            response=self.response[used],
            delay_s=self.delay_s[used],
            blur_s=self.blur_s[used],
            measure=self.measure[used],
        )


def coarse(response_s: float, shortest_s: float, *, is_measured: bool) -> Candidates:
    """Return candidates on a grid.

    Args:
        response_s: assumed response time of the sensor; 0 for none.
        shortest_s: mean duration of the phase with the shortest one.
        is_measured: whether the delays were measured, and the edges are those of the device.
    """
    grid = _coarse(response_s)
    return replace(grid, shortest_s=shortest_s, is_measured=is_measured).possible()


@cache
def _coarse(response_s: float) -> Candidates:
    """Return the grid with impossible candidates."""
    shares = _RESPONSES if response_s else np.ones(1)
    fine_s = np.arange(_FIRST_S, _LAST_S, _FINE_S)
    grid = np.stack(np.meshgrid(shares, _BLURS_S, fine_s, indexing="ij"), -1).reshape(-1, 3)
    return Candidates(
        response=grid[:, 0],
        blur_s=grid[:, 1],
        delay_s=grid[:, 2],
        measure=np.gradient(_BLURS_S)[np.searchsorted(_BLURS_S, grid[:, 1])],
        shortest_s=math.inf,
        response_s=response_s,
    )


def _powers(values: Array) -> Array:
    """Return the powers 1 to 4 of n values, (4, n)."""
    return np.cumprod(np.broadcast_to(values, (4, len(values))), axis=0, dtype=np.float64)


def _cubic(places: Array) -> Array:
    """Return the weights of four points for cubic interpolation, (4, n); see ``_CUBIC``."""
    return _CUBIC[:, :1] + _CUBIC[:, 1:] @ _powers(places)[:3]


def _uniform(first: Array, last: Array, size: int) -> Array:
    """Return the weights of a grid for means of interpolated values, (n, size).

    Args:
        first: place at which each mean begins, in steps of the grid, (n,).
        last: place at which it ends, (n,).
        size: number of points of the grid.
    """
    difference: Array = _integrals(last, size) - _integrals(first, size)
    return difference / (last - first)[:, None]


def _integrals(places: Array, size: int) -> Array:
    """Return the weights of a grid for integrals from the first point to each place, (n, size)."""
    sums = _integrals_to_points(size)
    step = np.clip(np.floor(places).astype(np.intp), 0, size - 2)
    integrals: Array = sums[step]
    integrals += _integrals_in_step(places, step, size)
    return integrals


@cache
def _integrals_to_points(size: int) -> Array:
    """Return the weights of a grid for integrals from the first point to each point."""
    steps = np.arange(size)
    sums = np.zeros((size, size))
    sums[1:] = _integrals_in_step(steps[1:].astype(float), steps[:-1], size).cumsum(axis=0)
    return sums


def _integrals_in_step(places: Array, step: NDArray[np.intp], size: int) -> Array:
    """Return the same for integrals from the start of a step of the grid."""
    second = np.clip(step, 1, size - 3)
    primitive = _CUBIC / (np.arange(4) + 1.0)
    weights = primitive @ (_powers(places - second) - _powers((step - second).astype(float)))
    index = second + np.arange(0, size * len(step), size)
    indices = index + np.arange(-1, 3)[:, None]
    sums = np.bincount(indices.ravel(), weights.ravel(), size * len(step))
    return np.asarray(sums, np.float64).reshape(-1, size)


def _later(weights: Array, rates: Array) -> Array:
    """Return weights of a grid for delays that are longer, exponentially distributed, (D, n).

    Args:
        weights: weights for n distributions of delays, (D, n).
        rates: step of the grid divided by the mean of the exponential distribution, (n,).
    """
    density = rates * np.exp(-rates * _INSIDE[:, None]) * _INSIDE_WEIGHTS[:, None]
    size = len(weights)
    later = np.zeros((size + 3, len(rates)))
    # The part of the distribution in the first step, and the same with less weight in each step.
    for place, weight in enumerate(_cubic(_INSIDE) @ density):
        later[place : place + size] += weight * weights
    later[1] += later[0]
    later = later[1 : size + 1]
    kept = np.exp(-rates)
    for place in range(1, size):
        later[place] += kept * later[place - 1]
    later[-1] = 1.0 - later[:-1].sum(axis=0)
    return later
