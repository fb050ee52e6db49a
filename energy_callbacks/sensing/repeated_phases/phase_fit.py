"""Estimates the energy of phases that repeat, from the intervals of an energy curve.

An interval that contains an edge between two phases does not show how its energy is divided between
them. Division in proportion to time moves energy from the phase with the higher power to the other,
by a similar amount at every edge. Therefore the power of each phase is fitted to all repetitions
together::

    x_kp     exposure of interval k to phase p, s (``exposure``); the sum over p is the width w_k
    e_k      energy of interval k
    M_pq     sum over k of x_kp x_kq / w_k
    b_p      sum over k of x_kp e_k / w_k: the energy of phase p if divided in proportion to time
    T_p      sum over k of x_kp
    D_p      duration of phase p

If power is P_p in phase p plus white noise, the weighted least-squares fit is M P = b. The
difference between an interval and the fit is divided in proportion to time. The energies of the
phases are then::

    E = b + (D - M) P + c D     (the first D as a diagonal matrix)

With a counter, T is D. The exposures of power samples to a phase sum to its duration only on
average. The power c is the same in all phases, so that the energies sum to the same total as b.

The delays of the device behind the host's edges and the response of the sensor are not known. The
result is the mean over many candidates (``edge_delays``), weighted by their likelihood. Its
uncertainty includes the deviations between candidates, which have the same sign in all repetitions.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from energy_callbacks.core.records import NORMAL_95
from energy_callbacks.core.yielding import pieces, yield_if_due
from energy_callbacks.sensing.estimation.series import Array
from energy_callbacks.sensing.repeated_phases.edge_delays import Candidates, coarse
from energy_callbacks.sensing.repeated_phases.edge_kinds import fit_kinds
from energy_callbacks.sensing.repeated_phases.edge_residuals import BEYOND_S, left_at_edges_j
from energy_callbacks.sensing.repeated_phases.fit_noise import (
    Noise,
    is_mixed,
    noise_of,
    unexplained,
)
from energy_callbacks.sensing.repeated_phases.grid_sums import LEAST_RIDGE_S, Fits, mixing
from energy_callbacks.sensing.repeated_phases.phase_sums import PhaseSums
from energy_callbacks.sensing.repeated_phases.recent_intervals import RecentIntervals

# Power of a phase before any reading: the mean power, with a standard deviation of this share.
_PRIOR_SHARE: Final = 1.0
# A late edge moves energy between two phases: that of the lower power, and this share of the
# difference. The rest of the difference is divided correctly. (Fitted: 0.5 to 1 are possible.)
_MOVED_SHARE: Final = 0.75
# Uncertainty of the place of all edges together, s: exposures are computed from tables, and from
# interpolation in the grid.
_PLACE_S: Final = 6e-5
# Errors of the intervals are correlated where the counter corrects the readings, and the correction
# is largest at edges. If both phases at an edge have few intervals, each such error counts at
# several edges: they explain a misfit that is larger by this number times the square of the width
# of an interval, divided by the lengths of the two phases. Fitted.
_CROWDED: Final = 16.0
# Error of energies for unequal delays, as a share of their difference from those for equal ones.
_UNEQUAL_SHARE: Final = 0.1
# The mean energy left at a kind of edge widens the interval as far as it exceeds this many standard
# errors, and two delays are fitted if it exceeds the other number of them: their fit itself shows
# whether they explain the readings better.
_INSIGNIFICANT: Final = 3.0
_SUSPECT: Final = 1.0
# Phases with at most this number of edges do not show a delay.
_SELDOM: Final = 4
# Candidates are refined until the probability is distributed over this number of them, but at most
# this number of times.
_ENOUGH: Final = 15.0
_MOST_ROUNDS: Final = 4
# Candidates with a lower probability do not change variances by more than about this share.
_NEGLIGIBLE: Final = 1e-12
# Number of candidates whose variances are computed at once: this takes less than 1 ms.
_AT_ONCE: Final = 240


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseEnergies:
    """Energies of all phases, (P,) each.

    Attributes:
        energy_j: energies.
        stderr_j: standard errors due to noise, and to delays that differ from edge to edge.
        edge_j: half-widths of the 95 % interval of the error due to unknown delays and responses.
        duration_s: durations without gaps in the readings.
        unexplained: share of the squared changes of power between readings that are not due to
            phases; 1 with a counter alone.
        shows_edges: whether phases differ enough in power that a fit is better than division in
            proportion to time.
    """

    energy_j: Array
    stderr_j: Array
    edge_j: Array
    duration_s: Array
    unexplained: Array
    shows_edges: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fit:
    """Candidates, and the best of them in the N newest intervals.

    Attributes:
        sums: sums over all intervals.
        recent: the newest intervals.
        candidates: n candidates.
        fits: their fits.
        exposed: exposures for the best candidate, (P, N).
        left_j: energy that it leaves in each interval, (N,).
        noise: noise of this energy.
    """

    sums: PhaseSums
    recent: RecentIntervals
    candidates: Candidates
    fits: Fits
    exposed: Array
    left_j: Array
    noise: Noise

    @property
    def place(self) -> float:
        """Misfit due to a wrong place of the edges, which is the same in all repetitions, J^2/s."""
        misplaced_j = _PLACE_S * self.fits.jumps_w
        return float((self.sums.changes * misplaced_j**2).sum()) / self.sums.mean_width_s

    @property
    def crowded(self) -> float:
        """Factor by which ``place`` is larger because errors of intervals are correlated."""
        if self.sums.is_counted:
            return 1.0
        changes, lengths_s = self.sums.changes, self.sums.lengths_s
        near = float((changes / np.outer(lengths_s, lengths_s)).sum() / changes.sum())
        return 1.0 + _CROWDED * near * self.sums.mean_width_s**2

    @property
    def cost(self) -> Array:
        """Cost of each candidate, (n,); see ``Candidates.shares``.

        A wrong place of the edges explains a misfit up to ``place``, so only the rest counts.
        """
        misfit = self.fits.misfit - self.fits.misfit.min()
        rest = np.maximum(np.sqrt(misfit) - math.sqrt(self.crowded * self.place), 0.0)
        cost: Array = rest**2 / self.noise.at_edges
        return cost


# NumPy may be set to raise an exception if a number underflows, for example by the user's program.
@np.errstate(all="ignore")
def phase_energies(sums: PhaseSums) -> PhaseEnergies:
    """Return the energies of the phases in ``sums``, which must contain an interval."""
    if not sums.changes.any() or sums.mean_w <= 0.0:
        return _in_proportion(sums)
    yield_if_due()
    recent = RecentIntervals(sums)
    yield_if_due()
    candidates = coarse(sums.response_s, sums.shortest_s, is_measured=sums.is_dated)
    fit = _fit(sums, recent, candidates, 0.0)
    if (sums.changes * fit.fits.jumps_w).sum() < sums.mean_w:
        # A delay would move less energy at all edges than between the first and the last phase, at
        # the ends of the attempt.
        return replace(_averaged(fit), shows_edges=False)
    for _ in range(_MOST_ROUNDS):
        if 1.0 / (fit.candidates.shares(fit.cost) ** 2).sum() >= _ENOUGH:
            break
        fit = _fit(sums, recent, fit.candidates.finer(fit.cost), fit.noise.highest)
    if sums.is_dated:
        return _with_seldom(fit, _with_measured(fit, _averaged(fit)))
    return _with_seldom(fit, _with_kinds(fit, _averaged(fit)))


def _in_proportion(sums: PhaseSums) -> PhaseEnergies:
    """Return energies that are divided in proportion to time."""
    nothing = np.zeros(sums.count)
    return PhaseEnergies(
        energy_j=sums.proportional_j,
        stderr_j=nothing,
        edge_j=nothing,
        duration_s=sums.no_delay @ sums.durations_s,
        unexplained=np.ones(sums.count),
        shows_edges=False,
    )


def _with_kinds(fit: _Fit, equal: PhaseEnergies) -> PhaseEnergies:
    """Return the result for two delays, or that for one if edges of a kind are not late.

    Args:
        fit: the best candidates with equal delays.
        equal: their result.
    """
    kinds = None
    left_s = _left_j(fit, fit.left_j, (_SUSPECT, _INSIGNIFICANT)) / _jumps_w(fit)
    suspect_s, late_s = np.maximum(left_s - _PLACE_S, 0.0)
    if suspect_s.any():
        kinds = fit_kinds(fit.sums, fit.recent, fit.exposed, fit.noise.at_edges + fit.place)
    if kinds is None:
        shifted_j = _shifted_j(fit, fit.sums.changes, late_s)
        return replace(equal, edge_j=equal.edge_j + shifted_j)
    # The remaining error is assumed to be a share of what the unequal delays have changed.
    energy_j, delay_j = kinds
    changed_j = _UNEQUAL_SHARE * np.abs(energy_j - equal.energy_j)
    edge_j = np.hypot(np.hypot(delay_j, changed_j), _place_j(fit))
    return replace(equal, energy_j=_not_negative(energy_j), edge_j=edge_j)


def _with_measured(fit: _Fit, found: PhaseEnergies) -> PhaseEnergies:
    """Return the result for measured delays, with the errors of the few edges without one.

    What is left at an edge is not a delay, but power that changes slowly or late, such as that of a
    device which waits for the first batch. In intervals with an edge, at most this energy is in the
    wrong phase.
    """
    mixed_j = fit.left_j * is_mixed(fit.recent, fit.exposed)
    (left_j,) = _left_j(fit, mixed_j, (_INSIGNIFICANT,), beyond_s=(0.0,))
    left_j = fit.sums.changes * left_j
    shifted_j = _shifted_j(fit, fit.sums.undated, fit.sums.longest_delay_s)
    return replace(found, edge_j=found.edge_j + left_j.sum(axis=0) + left_j.sum(axis=1) + shifted_j)


def _with_seldom(fit: _Fit, found: PhaseEnergies) -> PhaseEnergies:
    """Return the result with wider intervals for phases that occur too seldom to show a delay.

    The delays of other edges may not apply to them: when a training begins, the host has queued
    nothing, so the device is not behind. Their intervals include the energy between the host's
    edges, also if intervals with an edge are divided in proportion to time.
    """
    changes = fit.sums.changes
    is_seldom = changes.sum(axis=0) + changes.sum(axis=1) <= _SELDOM
    on_host_j = fit.sums.on_host_j(fit.fits.levels_w[[fit.fits.best]])[0], fit.sums.proportional_j
    moved_j = np.abs(found.energy_j - on_host_j).max(axis=0) * is_seldom
    return replace(found, edge_j=found.edge_j + moved_j)


def _ridge_s(sums: PhaseSums, noise: float) -> float:
    """Return the duration of readings that have the same weight as the prior power."""
    return noise / (_PRIOR_SHARE * sums.mean_w) ** 2 + LEAST_RIDGE_S


def _fit(sums: PhaseSums, recent: RecentIntervals, candidates: Candidates, noise: float) -> _Fit:
    yield_if_due()
    weights = candidates.weights
    fits = sums.fits(weights, _ridge_s(sums, noise), sums.mean_w)
    yield_if_due()
    exposed = recent.exposed(sums.exposures_for(weights[fits.best]))
    yield_if_due()
    left_j = recent.energy_j - fits.levels_w[fits.best] @ exposed
    return _Fit(
        sums=sums,
        recent=recent,
        candidates=candidates,
        fits=fits,
        exposed=exposed,
        left_j=left_j,
        noise=noise_of(sums, recent, exposed, left_j),
    )


def _averaged(fit: _Fit) -> PhaseEnergies:
    """Return the mean over the candidates, weighted by their likelihood."""
    yield_if_due()
    energy_j = fit.fits.energy_j
    yield_if_due()
    weights = fit.candidates.shares(fit.cost)
    mean_j = weights @ energy_j
    likely = (weights > _NEGLIGIBLE).nonzero()[0]
    variances = np.maximum(_variances(fit, likely) + _jitter(fit, likely), 0.0)
    return PhaseEnergies(
        energy_j=_not_negative(mean_j),
        stderr_j=np.sqrt(weights[likely] @ variances),
        edge_j=np.hypot(NORMAL_95 * np.sqrt(weights @ (energy_j - mean_j) ** 2), _place_j(fit)),
        duration_s=weights @ fit.fits.durations_s,
        unexplained=unexplained(fit.sums, fit.recent, fit.exposed, fit.left_j),
    )


def _place_j(fit: _Fit) -> Array:
    """Return bounds of the errors due to the uncertainty of the place of all edges, J, (P,)."""
    both_w = (fit.sums.changes + fit.sums.changes.T) * fit.fits.jumps_w
    place_j: Array = _PLACE_S * both_w.sum(axis=1)
    return place_j


def _not_negative(energy_j: Array) -> Array:
    """Return energies without negative ones, which noise may cause; the sum is the same."""
    positive_j = np.maximum(energy_j, 0.0)
    scaled_j: Array = positive_j * (energy_j.sum() / positive_j.sum())
    return scaled_j


def _variances(fit: _Fit, candidates: NDArray[np.intp]) -> Array:
    """Return the variances due to noise: of the powers, and inside mixed intervals, (n, P).

    Args:
        fit: the fit.
        candidates: places of n candidates.
    """
    parts = pieces(fit.fits.products[candidates], _AT_ONCE)
    return np.concatenate([_variances_of(products, fit) for products in parts])


def _variances_of(products: Array, fit: _Fit) -> Array:
    """Return the same for some candidates, whose M are ``products``."""
    sums, noise = fit.sums, fit.noise
    unit, mixed = np.eye(sums.count), mixing(products)
    ridge_s = _ridge_s(sums, noise.highest)
    inverse = np.linalg.inv(products + ridge_s * unit)
    density = np.sqrt(np.outer(noise.by_phase, noise.by_phase))
    spread = density * products + noise.highest * ridge_s * unit
    covariance = inverse @ spread @ inverse
    variances: Array = (mixed @ covariance * mixed).sum(axis=2)
    # Inside an interval, power that changes slowly is more alike on both sides of an edge.
    rough = noise.by_phase * noise.roughness**2
    shared_s = np.maximum(-mixed * (1.0 - unit), 0.0)
    variances += (shared_s * (rough[:, None] + rough) / 2.0).sum(axis=2)
    return variances


def _jitter(fit: _Fit, candidates: NDArray[np.intp]) -> Array:
    """Return the variances due to delays that differ from edge to edge, (n, P).

    A phase that a late edge makes longer uses more energy, while the fit keeps its mean duration.
    The differences are at most those that explain what the fit leaves at the edges.

    Args:
        fit: the fit.
        candidates: places of n candidates.
    """
    columns = (fit.fits.levels_w[candidates], fit.candidates.longest_blur_s[candidates])
    parts = zip(*(pieces(column, _AT_ONCE) for column in columns), strict=True)
    return np.concatenate([_jitter_of(levels_w, blur_s, fit) for levels_w, blur_s in parts])


def _jitter_of(levels_w: Array, blur_s: Array, fit: _Fit) -> Array:
    """Return the same for some candidates, with these powers and blurs."""
    low_w, high_w = (
        choose(levels_w[..., None], levels_w[:, None]) for choose in (np.minimum, np.maximum)
    )
    moved_w = low_w + _MOVED_SHARE * (high_w - low_w)
    possible = fit.noise.at_edge_j2 / _jumps_w(fit) ** 2
    # Updates of the sensor are late, too, but do not make phases longer.
    blur_s2 = np.maximum(blur_s**2 - fit.sums.update_s**2, 0.0)
    variance_s2 = np.minimum(blur_s2[:, None, None] / 12.0, possible)
    both = fit.sums.changes + fit.sums.changes.T
    jitter: Array = (both * moved_w**2 * variance_s2).sum(axis=2)
    return jitter


def _left_j(
    fit: _Fit, left_j: Array, errors: Sequence[float], beyond_s: Sequence[float] = BEYOND_S
) -> Array:
    """Return the mean energy that is left at an edge of each kind, (E, P, P).

    See ``edge_residuals``.

    Args:
        fit: the fit.
        left_j: energy that is left in each interval, (N,).
        errors: E numbers of standard errors by which this energy is reduced.
        beyond_s: times beyond the range of the device's edges.
    """
    yield_if_due()
    best = fit.fits.best
    delay_s, blur_s = float(fit.candidates.delay_s[best]), float(fit.candidates.blur_s[best])
    half_s = blur_s / 2.0 + fit.sums.mean_width_s
    return left_at_edges_j(
        fit.recent,
        fit.sums.exposures,
        left_j,
        delay_s,
        half_s,
        errors=errors,
        beyond_s=beyond_s,
    )


def _jumps_w(fit: _Fit) -> Array:
    """Return the differences of power between the phases, (P, P), of which none is 0."""
    return np.maximum(fit.fits.jumps_w, 1e-9)


def _shifted_j(fit: _Fit, edges: Array, late_s: Array | float) -> Array:
    """Return bounds of the errors due to edges that are late, (P,).

    At most the higher of the two powers is moved, for at most the shorter of the two phases.

    Args:
        fit: the fit.
        edges: number of such edges of each kind, (P, P).
        late_s: time by which they are late, (P, P), or the same for all.
    """
    levels_w, lengths_s = fit.fits.levels_w[fit.fits.best], fit.sums.lengths_s
    shorter_s = np.minimum(lengths_s[:, None], lengths_s)
    moved_j = np.minimum(late_s, shorter_s) * np.maximum(levels_w[:, None], levels_w)
    shifted_j = edges * moved_j
    bounds: Array = shifted_j.sum(axis=0) + shifted_j.sum(axis=1)
    return bounds
