"""The newest intervals of ``PhaseSums``, as arrays, and what a candidate leaves in them.

A pair is an interval and one of the edges of its stretch. Exposures are computed for all K pairs at
once, because a fit needs them several times.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from energy_callbacks.core.yielding import yield_if_due
from energy_callbacks.sensing.estimation.exposure import Exposure
from energy_callbacks.sensing.estimation.series import Array
from energy_callbacks.sensing.repeated_phases.phase_sums import PhaseSums


class RecentIntervals:
    """N intervals, in stretches, and the edges on which they depend.

    Attributes:
        width_s: widths, (N,).
        energy_j: energies, (N,).
        place: place of each interval in its stretch, (N,).
        is_exact: whether each interval contains the energy between its ends, (N,).
        changes: number of edges inside the intervals from one phase to another, (P, P).
        before: phase that the edge of each pair ends, (K,).
        after: phase that the edge of each pair begins, (K,).
        whole_s: exposures to the phases at the starts of the stretches, as if there were no edges,
            (P, N).

    Args:
        sums: sums that contain the intervals.
    """

    def __init__(self, sums: PhaseSums) -> None:
        stretches = list(sums.recent)
        edges = [one.edges for one in stretches]
        sizes, counts = ([len(one) for one in column] for column in (stretches, edges))
        self.energy_j = np.concatenate([one.energy_j for one in stretches])
        starts_s = np.concatenate([one.t_s[:-1] for one in stretches])
        self.width_s = np.concatenate([one.t_s[1:] for one in stretches]) - starts_s
        numbers = np.arange(len(self.width_s))
        yield_if_due()
        self.place = numbers - np.repeat(_starts(sizes), sizes)
        self.whole_s = np.zeros((sums.count, len(numbers)))
        self.whole_s[np.repeat([one.labels[0] for one in edges], sizes), numbers] = self.width_s
        self.changes = np.zeros((sums.count, sums.count))
        for one in stretches:
            yield_if_due()
            for change, _ in one.changes:
                self.changes[change] += 1.0

        yield_if_due()
        self._pairs = np.repeat(counts, sizes)
        self._firsts = _starts(self._pairs)
        self._interval = np.repeat(numbers, self._pairs)
        shifts = np.repeat(_starts(counts), sizes) - self._firsts
        edge = np.arange(len(self._interval)) + shifts[self._interval]
        self.before = np.concatenate([one.labels[:-1] for one in edges]).astype(np.intp)[edge]
        self.after = np.concatenate([one.labels[1:] for one in edges]).astype(np.intp)[edge]
        yield_if_due()
        edges_s = np.concatenate([one.t_s for one in edges])
        self._start_s = starts_s[self._interval] - edges_s[edge]
        self._end_s = self._start_s + self.width_s[self._interval]
        self.is_exact = np.repeat([one.is_exact for one in stretches], sizes)
        self._is_exact = self.is_exact[self._interval]
        # An edge may belong to neighbouring stretches.
        self._moment = np.unique(edges_s, return_inverse=True)[1][edge]

    def exposed(self, exposures: Sequence[Exposure]) -> Array:
        """Return the exposures of the intervals to each phase, (P, N).

        Args:
            exposures: see ``PhaseSums.exposures_for``.
        """
        return self.whole_s + self.by_phase(self.after_edges(exposures))

    def after_edges(self, exposures: Sequence[Exposure], delays_s: Array | float = 0.0) -> Array:
        """Return the exposure of each pair's interval to the time after its edge, (..., K).

        Args:
            exposures: see ``PhaseSums.exposures_for``.
            delays_s: delays of the edges, (..., 1).
        """
        start_s, end_s = self._start_s - delays_s, self._end_s - delays_s
        after_s: Array = np.empty_like(start_s)
        for is_exact, one in enumerate(exposures):
            yield_if_due()
            used = self._is_exact == is_exact
            if used.any():
                after_s[..., used] = one.between(start_s[..., used], end_s[..., used])
        return after_s

    def by_phase(self, after_s: Array) -> Array:
        """Return the differences that edges make to the exposures of the intervals, (P, ..., N).

        Args:
            after_s: exposures of pairs to the time after the edge, (..., K).
        """
        phases = np.arange(len(self.whole_s))[:, None]
        signs = (self.after == phases).astype(float) - (self.before == phases)
        return np.stack([self._by_interval(after_s * sign) for sign in signs])

    def _by_interval(self, of_pairs: Array) -> Array:
        """Return the sum over the pairs of each interval, (..., N)."""
        yield_if_due()
        padded = np.concatenate([of_pairs, np.zeros((*of_pairs.shape[:-1], 1))], axis=-1)
        return np.add.reduceat(padded, self._firsts, axis=-1) * (self._pairs > 0)

    def near_edges(
        self, exposures: Sequence[Exposure], delay_s: float, half_s: float, left_j: Array
    ) -> Array:
        """Return energy near edges: sum and sum of squares over those of a kind, (2, P, P).

        Args:
            exposures: see ``PhaseSums.exposures_for``.
            delay_s: delay of the device's edges.
            half_s: an interval is near an edge up to this long before and after the device's edge.
            left_j: energy in each interval, (N,).
        """
        early_s, late_s = (self.after_edges(exposures, delay_s + s) for s in (-half_s, half_s))
        near_j = (early_s - late_s) * (left_j / self.width_s)[self._interval]
        of_moments_j = np.bincount(self._moment, near_j)
        count = len(self.whole_s)
        kinds = np.zeros(len(of_moments_j), np.intp)
        kinds[self._moment] = self.before * count + self.after
        sums = [np.bincount(kinds, of_moments_j**power, count**2) for power in (1, 2)]
        of_pairs: Array = np.reshape(sums, (2, count, count)).astype(float)
        return of_pairs


def _starts(sizes: Sequence[int] | NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the places at which consecutive parts of these sizes begin."""
    ends: NDArray[np.intp] = np.cumsum(sizes, dtype=np.intp)
    return ends - np.asarray(sizes, np.intp)
