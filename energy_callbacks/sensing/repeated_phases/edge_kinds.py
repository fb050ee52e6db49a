"""Fits two delays: one for edges that begin a later phase, one for edges that return to an earlier.

Phases are numbered in the order in which they first begin, so ``train`` is earlier than
``validation``. A host that does not wait for its device is ahead of it when a validation begins. It
is not ahead when the validation ends, if it has waited for the result. A candidate of
``edge_delays`` has the same delays for all edges and cannot describe this.

If the power rises at the edges that are later than the others, the device may have nothing to do
there, because the host starts slowly: a loader starts its workers, for example. Energies without
such delays are then a part of the interval.

Two delays need sums of four times the size. They are computed from the newest intervals only, when
the attempt ends. The fit counts only if it explains these intervals decisively better. The energy
that the delays move at an edge is then taken to be the same in the whole attempt.
"""

from itertools import combinations
from typing import Final

import numpy as np

from energy_callbacks.core.records import NORMAL_95
from energy_callbacks.core.yielding import pieces, yield_if_due
from energy_callbacks.sensing.estimation.series import Array
from energy_callbacks.sensing.repeated_phases.grid_sums import LEAST_RIDGE_S, Fits, GridSums
from energy_callbacks.sensing.repeated_phases.phase_sums import PhaseSums
from energy_callbacks.sensing.repeated_phases.recent_intervals import RecentIntervals

# Grid of delays, s: from those of a sensor whose lag is smaller than assumed to half a second.
_STEP_S: Final = 0.005
_DELAYS_S: Final = np.arange(-0.02, 0.5001, _STEP_S)
_NO_DELAYS: Final = np.full((1, 2), 4.0)  # places of the delay 0 in the grid
# Distances of the candidates in each round, in steps of the grid, and the number of candidates that
# are refined after a round.
_ROUNDS: Final = (4.0, 1.0, 0.25)
_REFINED: Final = 12
# The fit counts if its cost is lower than that of equal delays by at least this number. Two delays
# that are equal in truth lower the cost by about 1.
_DECISIVE: Final = 15.0
# Number of rows of a matrix that are computed at once: this takes less than 1 ms.
_ROWS: Final = 4
# Fewer edges of each kind than this do not show a delay.
_FEWEST: Final = 4
# A device runs phases in the order of the host: delays that would reverse the edges of more than
# this share of the phases are impossible.
_REVERSED: Final = 0.1


def _sums(recent: RecentIntervals, exposed: Array) -> GridSums:
    """Return the sums over intervals with these exposures, (P, G, N)."""
    count, size, _ = exposed.shape
    sums = GridSums(size)
    sums.count = count
    sums.square = float((recent.energy_j**2 / recent.width_s).sum())
    sums.exposed_s, sums.rates = np.empty((size, count)), np.empty((size, count))
    sums.products = {pair: np.empty((size, size)) for pair in combinations(range(count), 2)}
    for rows in pieces(np.arange(size), _ROWS):
        part = exposed[:, rows]
        sums.exposed_s[rows] = part.sum(axis=-1).T
        sums.rates[rows] = (part @ (recent.energy_j / recent.width_s)).T
        weighted = part / recent.width_s
        for (p, q), products in sums.products.items():
            yield_if_due()
            products[rows] = weighted[p] @ exposed[q].T
    sums.durations_s = sums.exposed_s
    return sums


def _of_kinds(sums: PhaseSums, recent: RecentIntervals, pairs: Array) -> tuple[GridSums, Array]:
    """Return sums for the R delays of later and of earlier edges that pairs of delays need.

    The exposures for a pair are a weighted sum of R rows: some for the delay of later edges, some
    for the delay of earlier edges, and one for what does not depend on edges.

    Args:
        sums: sums of the attempt.
        recent: its newest intervals.
        pairs: places of the two delays in ``_DELAYS_S``, (n, 2).

    Returns:
        The sums, for R points, and the weights of the points for each pair, (n, R).
    """
    exposed, weights = [], []
    for is_later, places in zip((True, False), pairs.T, strict=True):
        linear = _linear(places)
        is_used = linear.any(axis=0)
        exposed.append(_exposed(sums, _DELAYS_S[is_used], is_later=is_later))
        weights.append(linear[:, is_used])
    exposed.append(recent.whole_s[:, None])
    weights.append(np.ones((len(pairs), 1)))
    return _sums(recent, np.concatenate(exposed, axis=1)), np.concatenate(weights, axis=1)


def _exposed(sums: PhaseSums, delays_s: Array, *, is_later: bool) -> Array:
    """Return the differences that edges of one kind make to the newest intervals, (P, D, N).

    Args:
        sums: sums of the attempt.
        delays_s: delays of the edges, (D,).
        is_later: whether the edges are those that begin a later phase.
    """
    parts = []
    for stretch in sums.recent:
        yield_if_due()
        edges, labels = stretch.edges, np.array(stretch.edges.labels)
        is_used = (labels[1:] > labels[:-1]) == is_later
        since_s = stretch.t_s - edges.t_s[is_used, None, None] - delays_s[:, None]
        signs, width_s = edges.signs(sums.count)[:, is_used], np.diff(stretch.t_s)
        exposure = sums.exposures[stretch.is_exact]
        parts.append(exposure.after_jumps(since_s, width_s, signs))
    return np.concatenate(parts, axis=-1)


def fit_kinds(
    sums: PhaseSums, recent: RecentIntervals, equal: Array, scale: float
) -> tuple[Array, Array] | None:
    """Fit two delays, one for each kind of edge.

    Args:
        sums: sums of the attempt.
        recent: its newest intervals.
        equal: their exposures for the best candidate with equal delays, (P, N).
        scale: misfit that raises the cost by 1, J^2/s.

    Returns:
        The energy of each phase in the whole attempt, (P,), and the half-width of its 95 % interval
        due to what is not known about the delays, (P,), J. ``None`` if equal delays explain the
        intervals as well.
    """
    if min(np.triu(sums.changes, 1).sum(), np.tril(sums.changes, -1).sum()) < _FEWEST:
        return None
    of_equal = _sums(recent, equal[:, None])
    misfit = _fits(of_equal, np.ones((1, 1)), sums.mean_w).misfit[0]
    leads_s = _longest_leads_s(sums)
    pairs = _in_order(_grid(_ROUNDS[0]), leads_s)
    for step in _ROUNDS[1:]:
        cost = _fits(*_of_kinds(sums, recent, pairs), sums.mean_w).misfit
        refined = pairs[np.argsort(cost, kind="stable")[:_REFINED]]
        pairs = _in_order(_around(refined, step), leads_s)
    fits, whole_j = _energies(sums, recent, pairs)
    if misfit - fits.misfit.min() < _DECISIVE * scale:
        return None
    shares = np.exp((fits.misfit.min() - fits.misfit) / (2.0 * scale))
    shares /= shares.sum()
    mean_j = shares @ whole_j
    delay_j = NORMAL_95 * np.sqrt(shares @ (whole_j - mean_j) ** 2)
    later, earlier = pairs[fits.best]
    if _rises(sums.changes, fits.levels_w[fits.best], is_later=later > earlier):
        sooner = np.full((1, 2), min(later, earlier))
        delay_j += np.abs(_energies(sums, recent, sooner)[1][0] - mean_j)
    return mean_j, delay_j


def _energies(sums: PhaseSums, recent: RecentIntervals, pairs: Array) -> tuple[Fits, Array]:
    """Return the fits for n pairs of delays, and the energies in the whole attempt, J, (n, P)."""
    of_kinds, weights = _of_kinds(sums, recent, np.append(pairs, _NO_DELAYS, axis=0))
    fits = _fits(of_kinds, weights[:-1], sums.mean_w)
    moved_j = fits.energy_j - of_kinds.energies_j(weights[-1:], fits.levels_w)
    share = recent.changes.sum() / sums.changes.sum()
    whole_j: Array = sums.on_host_j(fits.levels_w) + moved_j / share
    return fits, whole_j


def _rises(changes: Array, levels_w: Array, *, is_later: bool) -> bool:
    """Return whether the power rises at the edges to later, or to earlier, phases."""
    rises_w = changes * (levels_w - levels_w[:, None])
    return bool((np.triu(rises_w) if is_later else np.tril(rises_w)).sum() > 0.0)


def _longest_leads_s(sums: PhaseSums) -> tuple[float, float]:
    """Return the longest time by which edges to later and to earlier phases may be later, s.

    If edges to later phases were later than the others by more than the duration of the phases
    between them, the device would end these phases before it begins them.
    """
    edges: dict[float, bool] = {}
    for one in (stretch.edges for stretch in sums.recent):
        yield_if_due()
        edges |= zip(one.t_s.tolist(), (np.diff(one.labels) > 0).tolist(), strict=True)
    t_s, is_later = np.array(sorted(edges.items())).T
    durations_s, turns = np.diff(t_s), np.diff(is_later)

    def longest_s(turn: float) -> float:
        between_s = np.append(durations_s[turns == turn], np.inf)
        return float(np.quantile(between_s, _REVERSED, method="lower"))

    return longest_s(-1.0), longest_s(1.0)


def _in_order(pairs: Array, leads_s: tuple[float, float]) -> Array:
    """Return the pairs of delays, (n, 2), that keep the order of the edges."""
    later_s = _STEP_S * (pairs[:, 0] - pairs[:, 1])
    return pairs[(later_s <= leads_s[0]) & (-later_s <= leads_s[1])]


def _grid(step: float) -> Array:
    places = np.arange(1.0, len(_DELAYS_S) - 2.0, step)
    return np.stack(np.meshgrid(places, places, indexing="ij"), axis=-1).reshape(-1, 2)


def _around(pairs: Array, step: float) -> Array:
    shifts = step * np.stack(np.meshgrid(*[np.arange(-3.0, 4.0)] * 2), axis=-1).reshape(-1, 2)
    around = (pairs[:, None] + shifts).reshape(-1, 2)
    inside = ((around >= 0.0) & (around <= len(_DELAYS_S) - 1.0)).all(axis=1)
    # Without ``return_index``, NumPy imports a module, which is not safe on this thread (see
    # ``discovery``).
    return np.unique(around[inside], axis=0, return_index=True)[0]


def _fits(sums: GridSums, weights: Array, mean_w: float) -> Fits:
    return sums.fits(weights, LEAST_RIDGE_S, mean_w)


def _linear(places: Array) -> Array:
    """Return the weights of the grid's delays for linear interpolation, (n, D)."""
    yield_if_due()
    return np.maximum(1.0 - np.abs(places[:, None] - np.arange(len(_DELAYS_S))), 0.0)
