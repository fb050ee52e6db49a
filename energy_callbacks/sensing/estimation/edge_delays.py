"""Delays of a device behind the edges of its host, as weights for the grid of ``PhaseSums``.

A candidate is a distribution of delays, uniform with a mean and a width (the blur), and a response
of the sensor. The weights of a candidate say how its exposures follow from those of the grid; they
sum to 1 and may be negative, because they interpolate.
"""

from collections import Counter
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from energy_callbacks.sensing.estimation.series import Array

_FIRST_S: Final = -0.02
_LAST_S: Final = 0.225
_FINE_S: Final = 0.0025
_COARSE_S: Final = 0.005


def delays_s(responses: int) -> Array:
    """Return the grid of delays from the host's edge to the edge in the readings, s, (D,).

    Negative ones are for sensors whose lag is smaller than assumed. The host of an H200 was 109 ms
    ahead of the card (median, docs/h200.md). The grid is finer for sensors without a response time,
    because their readings change more suddenly, and interpolation between delays is less exact.

    Args:
        responses: number of responses in the grid: 1 for a sensor without a response time.
    """
    step_s = _FINE_S if responses == 1 else _COARSE_S
    grid_s: Array = np.arange(_FIRST_S, _LAST_S + step_s / 2.0, step_s)
    return grid_s


RESPONSES: Final = (0.67, 1.0, 1.33)
"""Grid of true responses, as shares of the assumed one.

That of an H200 was measured as 8 to 20 ms instead of 15 ms (docs/h200.md).
"""

_RESPONSE_STEP: Final = RESPONSES[1] - RESPONSES[0]
_BLURS_S: Final = np.array([0.0, 0.015, 0.035, 0.07, 0.12])
# Before any reading, delays and blurs are taken as exponentially distributed with these means, s.
_TYPICAL_DELAY_S: Final = 0.1
_TYPICAL_BLUR_S: Final = 0.04
# A device does not change before its host. Edges seem to be earlier by at most this, s, if the lag
# of the sensor is smaller than assumed. This limits the differences between delays.
_EARLY_S: Final = 0.02
# Number of delays by which a uniform distribution is replaced.
_NODES: Final = 8
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
        responses: number of responses in the grid.
        rounds: number of calls of ``finer``.
    """

    response: Array
    delay_s: Array
    blur_s: Array
    measure: Array
    shortest_s: float
    responses: int
    rounds: int = 0

    @property
    def grid_s(self) -> Array:
        """Delays of the grid, (D,)."""
        return delays_s(self.responses)

    @property
    def _step_s(self) -> float:
        return float(self.grid_s[1] - self.grid_s[0])

    @property
    def prior(self) -> Array:
        """Cost before any reading: twice the negative logarithm of the probability."""
        delay_s = np.maximum(self.delay_s, 0.0)
        cost: Array = 2.0 * (delay_s / _TYPICAL_DELAY_S + self.blur_s / _TYPICAL_BLUR_S)
        return cost

    @property
    def weights(self) -> Array:
        """Weights of the points of the grid, (n, responses x delays)."""
        shifts = (np.arange(_NODES) + 0.5) / _NODES - 0.5
        size = len(self.grid_s)
        shifted_s = self.delay_s[:, None] + self.blur_s[:, None] * shifts
        places = np.clip((shifted_s - _FIRST_S) / self._step_s, 0.0, size - 1.0)
        by_delay = _cubic(places, size).mean(axis=1)
        by_response = (
            _polynomial(self.response) if self.responses > 1 else np.ones((len(places), 1))
        )
        weights: Array = by_response[:, :, None] * by_delay[:, None]
        return weights.reshape(len(places), -1)

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
        response_steps = _RESPONSE_STEP / 2.0 * thirds if self.responses > 1 else np.zeros(1)
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
        groups = np.round((self.delay_s[by_cost] - _FIRST_S) / _FINE_S).tolist()
        taken: Counter[float] = Counter()
        kept = []
        for place, group in zip(by_cost.tolist(), groups, strict=True):
            if taken[group] < _REFINED_PER_DELAY and (
                group in taken or len(taken) < _REFINED_DELAYS
            ):
                taken[group] += 1
                kept.append(place)
        return np.array(kept)

    def possible(self) -> "Candidates":
        """Return the candidates without impossible ones."""
        limit_s = np.minimum(2.0 * (self.delay_s + _EARLY_S), self.shortest_s)
        is_inside = (self.delay_s >= _FIRST_S) & (self.delay_s + self.blur_s / 2 <= _LAST_S)
        margin = _RESPONSE_STEP / 3.0
        is_inside &= self.response >= RESPONSES[0] - margin
        is_inside &= self.response <= RESPONSES[-1] + margin
        used = is_inside & (self.blur_s <= limit_s + 1e-9)
        return replace(
            self,
            response=self.response[used],
            delay_s=self.delay_s[used],
            blur_s=self.blur_s[used],
            measure=self.measure[used],
        )


def coarse(responses: int, shortest_s: float) -> Candidates:
    """Return candidates on a grid.

    Args:
        responses: number of responses in the grid: 1 for a sensor without a response time.
        shortest_s: mean duration of the phase with the shortest one.
    """
    shares = np.linspace(RESPONSES[0], RESPONSES[-1], 5) if responses > 1 else np.ones(1)
    fine_s = np.arange(_FIRST_S, _LAST_S, _FINE_S)
    grid = np.stack(np.meshgrid(shares, _BLURS_S, fine_s, indexing="ij"), -1).reshape(-1, 3)
    return Candidates(
        response=grid[:, 0],
        blur_s=grid[:, 1],
        delay_s=grid[:, 2],
        measure=np.gradient(_BLURS_S)[np.searchsorted(_BLURS_S, grid[:, 1])],
        shortest_s=shortest_s,
        responses=responses,
    ).possible()


def _cubic(places: Array, count: int) -> Array:
    """Return the weights of grid points for cubic interpolation, (..., count)."""
    first = np.clip(np.floor(places).astype(np.intp) - 1, 0, count - 4)
    u = places - first
    four = np.stack(
        [
            -(u - 1) * (u - 2) * (u - 3) / 6,
            u * (u - 2) * (u - 3) / 2,
            -u * (u - 1) * (u - 3) / 2,
            u * (u - 1) * (u - 2) / 6,
        ],
        axis=-1,
    )
    weights = np.zeros((*places.shape, count))
    np.put_along_axis(weights, first[..., None] + np.arange(4), four, axis=-1)
    return weights


def _polynomial(share: Array) -> Array:
    """Return the weights of ``RESPONSES`` for interpolation by one polynomial, (n, responses)."""
    nodes = np.array(RESPONSES)
    columns = [
        np.prod([(share - other) / (node - other) for other in nodes if other != node], axis=0)
        for node in nodes
    ]
    return np.stack(columns, axis=1)
