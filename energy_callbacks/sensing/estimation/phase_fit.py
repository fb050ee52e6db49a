"""Estimates the energy of phases that repeat, from the intervals of an energy curve.

An interval that contains an edge between two phases does not show how its energy is divided between
them. Division in proportion to time moves energy from the phase with the higher power to the other,
by a similar amount at every edge. Therefore the power of each phase is fitted to all repetitions
together::

    x_kp     exposure of interval k to phase p, s (``exposure``); the sum over p is the width w_k
    e_k      energy of interval k
    M_pq     sum over k of x_kp x_kq / w_k
    b_p      sum over k of x_kp e_k / w_k: the energy of phase p if divided in proportion to time
    T_p      sum over k of x_kp: duration of phase p

If power is P_p in phase p plus white noise, the weighted least-squares fit is M P = b. Intervals
keep what they differ from the fit. The energies of the phases are then::

    E = b + (T - M) P           (T as a diagonal matrix)

They sum to the same total as b, because the columns of M sum to T.

A device follows the host's edges with delays that are not known. Exposures are linear in the
distribution of the delays: if half of the edges is delayed by 10 ms and half by 20 ms, exposures are
the mean of those for 10 ms and for 20 ms. Therefore ``PhaseFit`` sums products for pairs of delays
on a grid, from which M and b follow for every distribution (``edge_delays``). The result is the mean
over many distributions, weighted by their likelihood, and its uncertainty includes the deviations
between them.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from energy_callbacks.sensing.estimation.edge_delays import DELAYS_S, RESPONSES, Candidates, coarse
from energy_callbacks.sensing.estimation.exposure import Exposure, Shape
from energy_callbacks.sensing.estimation.series import Array

# Number of the newest intervals from which noise is computed.
_RECENT: Final = 4000
# Numbers of intervals that are merged to measure noise that is correlated between intervals.
_MERGED: Final = (1, 4, 16)
# Power of a phase before any reading: that of the attempt, with a standard deviation of this share.
_PRIOR_SHARE: Final = 1.0
# An interval is mixed if at least this share of it is outside of its main phase.
_MIXED: Final = 0.02
# What is left in the mixed intervals of an edge has the same sign if the edge is early or late, so
# the square of its sum is larger than the sum of its squares by about this factor.
_ALIKE: Final = 2.0
# Uncertainty of the place of each edge, as a share of the width of an interval.
_EDGE_SHARE: Final = 0.004
# Noise that is assumed at least, as a share of the mean power in an interval: readings are rounded.
_LEAST_NOISE: Final = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class Edges:
    """Changes of phase.

    Attributes:
        t_s: times of the changes, ascending, (m,).
        labels: number of the phase before the first change, and after each change, (m + 1,).
    """

    t_s: Array
    labels: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseEnergies:
    """Energies of all phases, (P,) each.

    Attributes:
        energy_j: energies.
        stderr_j: standard errors for known delays.
        edge_j: half-widths of the 95 % interval of the error due to unknown delays.
        duration_s: durations without gaps in the readings.
    """

    energy_j: Array
    stderr_j: Array
    edge_j: Array
    duration_s: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fits:
    """Fits for n candidates.

    Attributes:
        products: M, (n, P, P).
        rates: b, (n, P).
        levels_w: P, (n, P).
        misfit: weighted sum of squares that the fit leaves, J^2/s, (n,).
    """

    products: Array
    rates: Array
    levels_w: Array
    misfit: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class _Noise:
    """Spectral densities of what the best fit leaves of the power, J^2/s.

    Attributes:
        by_phase: density in each phase, (P,).
        roughness: share of it that is seen in single intervals, (P,): 1 for white noise, less for
            power that changes slowly.
        mixed: density in mixed intervals.
        at_edge_j2: mean square of the energy that is left at an edge, J^2.
    """

    by_phase: Array
    roughness: Array
    mixed: float
    at_edge_j2: float

    @property
    def highest(self) -> float:
        return float(max(self.by_phase.max(), self.mixed))


class PhaseFit:
    """Sums over the intervals of one device, from which ``energies`` computes those of the phases.

    Its size depends on the number of phases, not on the number of intervals.

    Args:
        shape: how energies depend on power.

    Attributes:
        is_exact: ``shape.is_exact``.
    """

    def __init__(self, shape: Shape) -> None:
        self.is_exact = shape.is_exact
        shares = RESPONSES if shape.response_s else (1.0,)
        shapes = [replace(shape, response_s=share * shape.response_s) for share in shares]
        self._exposures = [Exposure(one) for one in shapes]
        self._exact = [Exposure(Shape(is_exact=True))] * len(shapes)
        self._size = len(shapes) * len(DELAYS_S)
        self._count = 0
        self._products = np.zeros((self._size, 0, self._size, 0))
        self._rates = np.zeros((self._size, 0))
        self._square = 0.0
        self._intervals = 0
        self._changes = np.zeros((0, 0))
        self._recent: deque[tuple[Array, Array, Edges, bool]] = deque()
        self._recent_count = 0

    def __bool__(self) -> bool:
        """Return whether there are intervals."""
        return self._intervals > 0

    @property
    def reach_s(self) -> float:
        """Time from an edge to the last interval that depends on it, s."""
        return float(DELAYS_S[-1]) + max(one.reach_s for one in self._exposures)

    def add(self, t_s: Array, energy_j: Array, edges: Edges, *, is_exact: bool) -> None:
        """Add consecutive intervals.

        Args:
            t_s: ends of the intervals, (n + 1,).
            energy_j: energy of each interval, (n,).
            edges: edges from ``reach_s`` before the first interval to ``reach_s`` after the last.
            is_exact: whether each interval contains the energy between its ends, as with a counter.
        """
        self._make_room(max(edges.labels) + 1)
        self._square += float((energy_j**2 / np.diff(t_s)).sum())
        self._intervals += len(energy_j)
        if len(edges.t_s):
            exposed = self._exposed(t_s, edges, is_exact=is_exact)
            weighted = exposed / np.diff(t_s)
            flat = exposed.reshape(-1, len(energy_j))
            products = weighted.reshape(-1, len(energy_j)) @ flat.T
            self._products += products.reshape(self._products.shape)
            self._rates += weighted @ energy_j
            for place in np.flatnonzero((edges.t_s > t_s[0]) & (edges.t_s <= t_s[-1])):
                self._changes[edges.labels[place], edges.labels[place + 1]] += 1.0
        else:
            label = edges.labels[0]
            self._products[:, label, :, label] += t_s[-1] - t_s[0]
            self._rates[:, label] += energy_j.sum()
        self._recent.append((t_s, energy_j, edges, is_exact))
        self._recent_count += len(energy_j)
        while self._recent_count - len(self._recent[0][1]) > _RECENT:
            self._recent_count -= len(self._recent.popleft()[1])

    def _make_room(self, count: int) -> None:
        more = count - self._count
        if more > 0:
            self._count = count
            self._changes = np.pad(self._changes, (0, more))
            self._products = np.pad(self._products, [(0, 0), (0, more), (0, 0), (0, more)])
            self._rates = np.pad(self._rates, [(0, 0), (0, more)])

    def _exposed(self, t_s: Array, edges: Edges, *, is_exact: bool) -> Array:
        """Return exposures of the intervals for each response and delay, (size, P, n)."""
        since_s = t_s - edges.t_s[:, None] - DELAYS_S[:, None, None]
        signs = np.zeros((self._count, len(edges.t_s)))
        changes = np.arange(len(edges.t_s))
        signs[list(edges.labels[1:]), changes] += 1.0
        signs[list(edges.labels[:-1]), changes] -= 1.0
        exposures = self._exact if is_exact else self._exposures
        exposed = np.concatenate([signs @ one.after_jump(since_s) for one in exposures])
        exposed[:, edges.labels[0]] += np.diff(t_s)
        return exposed

    def energies(self) -> PhaseEnergies:
        """Return the energies of the phases that were added so far, by their number."""
        if not self._changes.any() or self._mean_w() <= 0.0:
            nothing = np.zeros(self._count)
            return PhaseEnergies(
                energy_j=self._rates[0],
                stderr_j=nothing,
                edge_j=nothing,
                duration_s=self._products[0, :, 0].sum(axis=1),
            )
        candidates = coarse(len(self._exposures), self._shortest_s())
        fits = self._fits(candidates, 0.0)
        noise = self._noise(candidates, fits)
        for _ in range(2):
            fits = self._fits(candidates, noise.highest)
            candidates = candidates.finer(fits.misfit / self._scale(fits, noise))
        fits = self._fits(candidates, noise.highest)
        noise = self._noise(candidates, fits)
        return self._averaged(candidates, fits, noise)

    def _shortest_s(self) -> float:
        """Return the mean duration of the phase with the shortest one; infinite without edges."""
        entered = self._changes.sum(axis=0)
        durations_s = self._products[0, :, 0].sum(axis=1)
        return float(np.min(durations_s[entered > 0] / entered[entered > 0], initial=math.inf))

    def _mean_w(self) -> float:
        return float(self._rates[0].sum() / self._products[0, :, 0].sum())

    def _fits(self, candidates: Candidates, noise: float) -> _Fits:
        weights = candidates.weights
        half = np.tensordot(weights, self._products, axes=(1, 0))
        products = np.einsum("npsq,ns->npq", half, weights)
        rates = weights @ self._rates
        mean_w = self._mean_w()
        ridge = noise / (_PRIOR_SHARE * mean_w) ** 2 + 1e-6
        levels_w = np.linalg.solve(
            products + ridge * np.eye(self._count), (rates + ridge * mean_w)[..., None]
        )[..., 0]
        left = np.einsum("np,npq,nq->n", levels_w, products, levels_w)
        left += self._square - 2.0 * (levels_w * rates).sum(axis=1)
        left += ridge * ((levels_w - mean_w) ** 2).sum(axis=1)
        return _Fits(products=products, rates=rates, levels_w=levels_w, misfit=np.maximum(left, 0.0))

    def _noise(self, candidates: Candidates, fits: _Fits) -> _Noise:
        best = int(fits.misfit.argmin())
        weights, levels_w = candidates.weights[best], fits.levels_w[best]
        merged = np.zeros((len(_MERGED), 2, self._count))
        mixed, at_edges_j2, edge_count = np.zeros(2), 0.0, 0
        for t_s, energy_j, edges, is_exact in self._recent:
            width_s = np.diff(t_s)
            exposed = np.zeros((self._count, len(width_s)))
            exposed[edges.labels[0]] = width_s
            if len(edges.t_s):
                all_exposed = self._exposed(t_s, edges, is_exact=is_exact)
                exposed = np.tensordot(weights, all_exposed, axes=(0, 0))
            left_j = energy_j - levels_w @ exposed
            for sums, number in zip(merged, _MERGED, strict=True):
                starts = np.arange(0, len(left_j), number)
                wide_s = np.add.reduceat(width_s, starts)
                shares = np.abs(np.add.reduceat(exposed, starts, axis=1)) / wide_s
                square = np.add.reduceat(left_j, starts) ** 2 / wide_s
                sums += shares @ square, shares.sum(axis=1)
            is_mixed = exposed.max(axis=0) < (1.0 - _MIXED) * width_s
            mixed += (left_j**2 / width_s)[is_mixed].sum(), is_mixed.sum()
            at_edges_j2 += float((left_j[is_mixed] ** 2).sum())
            edge_count += int(((edges.t_s > t_s[0]) & (edges.t_s <= t_s[-1])).sum())
        least = (_LEAST_NOISE * self._mean_w()) ** 2 * self._mean_s()
        densities = np.maximum(merged[:, 0] / np.maximum(merged[:, 1], 1e-9), least)
        lasting = densities.max(axis=0)
        all_mixed = max(float(mixed[0] / max(mixed[1], 1.0)), least)
        return _Noise(by_phase=lasting, roughness=densities[0] / lasting, mixed=all_mixed, at_edge_j2=_ALIKE * at_edges_j2 / max(edge_count, 1))

    def _jumps_w(self, fits: _Fits) -> Array:
        levels_w = fits.levels_w[fits.misfit.argmin()]
        jumps_w: Array = np.abs(levels_w[:, None] - levels_w)
        return jumps_w

    def _mean_s(self) -> float:
        return float(self._products[0, :, 0].sum() / self._intervals)

    def _scale(self, fits: _Fits, noise: _Noise) -> float:
        """Return the misfit that raises the cost of a candidate by 1, J^2/s.

        The errors of places of edges are the same in all repetitions.
        """
        same = (self._changes * self._jumps_w(fits) ** 2).sum() * _EDGE_SHARE**2 * self._mean_s()
        return float(noise.highest + same)

    def _averaged(self, candidates: Candidates, fits: _Fits, noise: _Noise) -> PhaseEnergies:
        unit = np.eye(self._count)
        durations_s = fits.products.sum(axis=2)
        mixing = durations_s[..., None] * unit - fits.products
        energy_j = fits.rates + np.einsum("npq,nq->np", mixing, fits.levels_w)
        ridge = noise.highest / (_PRIOR_SHARE * self._mean_w()) ** 2 + 1e-6
        inverse = np.linalg.inv(fits.products + ridge * unit)
        density = np.sqrt(np.outer(noise.by_phase, noise.by_phase))
        spread = density * fits.products + noise.highest * ridge * unit
        covariance = inverse @ spread @ inverse
        variances = np.einsum("npq,nqr,npr->np", mixing, covariance, mixing)
        rough = noise.by_phase * noise.roughness**2
        variances += (-mixing * (1.0 - unit) * (rough[:, None] + rough) / 2.0).clip(0.0).sum(axis=2)
        highest_w = np.maximum(fits.levels_w[..., None], fits.levels_w[:, None])
        both = self._changes + self._changes.T
        jitter = np.minimum(
            candidates.blur_s[:, None, None] ** 2 / 12.0,
            noise.at_edge_j2 / np.maximum(self._jumps_w(fits), 1e-9) ** 2,
        )
        variances += (both * highest_w**2 * jitter).sum(axis=2)
        cost = fits.misfit / self._scale(fits, noise) + candidates.prior
        weights = np.exp((cost.min() - cost) / 2.0) * candidates.measure
        weights /= weights.sum()
        mean_j = weights @ energy_j
        floor_j = _EDGE_SHARE * self._mean_s() * (both * self._jumps_w(fits)).sum(axis=1)
        spread_j = 1.96 * np.sqrt(weights @ (energy_j - mean_j) ** 2)
        return PhaseEnergies(
            energy_j=mean_j,
            stderr_j=np.sqrt(weights @ np.maximum(variances, 0.0)),
            edge_j=np.hypot(spread_j, floor_j),
            duration_s=weights @ durations_s,
        )
