"""Sums over the intervals of an energy curve from which ``phase_fit`` computes energies of phases.

The exposure of an interval to a phase depends on the delay with which the device follows the host's
edges, and on the response of the sensor. Both are unknown. ``PhaseSums`` computes exposures for a
grid of them and sums products for each pair of grid points. Exposures for other delays, for delays
that differ from edge to edge, and for other responses are linear combinations of those of the grid,
so the sums for them follow from the same products.
"""

import math
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations_with_replacement
from typing import Final

import numpy as np

from energy_callbacks.sensing.estimation.edge_delays import RESPONSES, delays_s
from energy_callbacks.sensing.estimation.exposure import Exposure, Shape
from energy_callbacks.sensing.estimation.grid_sums import GridSums, divided_j
from energy_callbacks.sensing.estimation.series import Array

# Number of the newest intervals that are kept for each phase, so that their noise can be computed.
_RECENT: Final = 2000
# Most rows of a product that are computed at once, and most multiplications of numbers. NumPy's
# linear algebra runs larger products on all cores, which would disturb the training (OpenBLAS,
# interface/gemm.c: SMP_THRESHOLD_MIN * GEMM_MULTITHREAD_THRESHOLD).
_ROWS: Final = 16
_MOST_MULTIPLICATIONS: Final = 65536 * 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Edges:
    """Changes of phase.

    Attributes:
        t_s: times of the changes, ascending, (m,).
        labels: number of the phase before the first change, and after each change, (m + 1,).
    """

    t_s: Array
    labels: Sequence[int]

    def signs(self, count: int) -> Array:
        """Return 1 for the phase that each change begins and -1 for the one it ends, (count, m)."""
        unit, labels = np.eye(count), np.array(self.labels)
        signs: Array = unit[:, labels[1:]] - unit[:, labels[:-1]]
        return signs


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Consecutive intervals of an energy curve.

    Attributes:
        t_s: ends of the intervals, (n + 1,).
        energy_j: energy of each interval, (n,).
        edges: edges from ``PhaseSums.reach_s`` before the first interval to ``PhaseSums.ahead_s``
            after the last.
        is_exact: whether each interval contains the energy between its ends, as with a counter.
    """

    t_s: Array
    energy_j: Array
    edges: Edges
    is_exact: bool

    @property
    def edge_count(self) -> int:
        """Number of edges inside the intervals."""
        return int(self._is_inside.sum())

    @property
    def changes(self) -> list[tuple[int, int]]:
        """Phase before and after each edge inside the intervals, if they differ."""
        labels = self.edges.labels
        pairs = [
            (labels[place], labels[place + 1]) for place in self._is_inside.nonzero()[0].tolist()
        ]
        return [(before, after) for before, after in pairs if before != after]

    @property
    def _is_inside(self) -> Array:
        inside: Array = (self.edges.t_s > self.t_s[0]) & (self.edges.t_s <= self.t_s[-1])
        return inside


class PhaseSums(GridSums):
    """Sums over the intervals of one device.

    Their size depends on the number of phases, P, and not on the number of intervals. The points of
    the grid are all of ``edge_delays.delays_s`` for each of ``RESPONSES``, or for one response if
    the sensor has none.

    Args:
        shape: how energies depend on power.

    Attributes:
        is_exact: ``shape.is_exact``.
        responses: number of responses in the grid.
        no_delay: place in the grid of the assumed response without a delay.
        intervals: number of intervals.
        changes: number of changes from one phase to another, (P, P).
    """

    def __init__(self, shape: Shape) -> None:
        shares = RESPONSES if shape.response_s else (1.0,)
        shapes = [replace(shape, response_s=share * shape.response_s) for share in shares]
        self._exposures = [Exposure(one) for one in shapes]
        self._exact = [Exposure(Shape(is_exact=True))] * len(shares)
        self.is_exact = shape.is_exact
        self.responses = len(shares)
        self._delays_s = delays_s(len(shares))
        self._size = len(shares) * len(self._delays_s)
        super().__init__(self._size)
        zero = int(np.abs(self._delays_s).argmin())
        self.no_delay = len(shares) // 2 * len(self._delays_s) + zero
        self.intervals = 0
        self.changes = np.zeros((0, 0))
        # By the last of the phases in a stretch: phases are numbered as they begin, so phases with
        # high numbers are rare, and would else be gone when the noise is computed.
        self._recent: dict[int, deque[Stretch]] = defaultdict(deque)

    @property
    def reach_s(self) -> float:
        """Longest time from an edge to a later interval that depends on it, s."""
        return float(self._delays_s[-1]) + max(one.reach_s for one in self._exposures)

    @property
    def ahead_s(self) -> float:
        """Longest time from an interval to a later edge on which it depends, s."""
        return max(one.ahead_s for one in self._exposures) - float(self._delays_s[0])

    @property
    def recent(self) -> Iterator[Stretch]:
        """The newest stretches with each phase."""
        return chain.from_iterable(self._recent.values())

    @property
    def durations_s(self) -> Array:
        """Duration of each phase without gaps in the readings, (P,), for the smallest delay.

        Another delay changes only the first and the last phase of the attempt.
        """
        durations_s: Array = self.products_at(0).sum(axis=1)
        return durations_s

    @property
    def mean_w(self) -> float:
        """Mean power."""
        return float(self.rates[0].sum() / self.durations_s.sum())

    @property
    def mean_width_s(self) -> float:
        """Mean width of an interval."""
        return float(self.durations_s.sum() / self.intervals)

    @property
    def shortest_s(self) -> float:
        """Mean duration of the phase whose mean duration is shortest; infinite without edges."""
        entered = self.changes.sum(axis=0)
        means_s = self.durations_s[entered > 0] / entered[entered > 0]
        return float(np.min(means_s, initial=math.inf))

    def on_host_j(self, levels_w: Array) -> Array:
        """Return the energies of the phases between the host's edges, J, (n, P).

        Args:
            levels_w: n sets of powers of the phases, by which intervals with an edge are divided,
                (n, P).
        """
        return divided_j(self.products_at(self.no_delay), self.rates[self.no_delay], levels_w)

    def add(self, stretch: Stretch) -> None:
        """Add consecutive intervals."""
        edges, energy_j, width_s = stretch.edges, stretch.energy_j, np.diff(stretch.t_s)
        self._make_room(max(edges.labels) + 1)
        self.square += float((energy_j**2 / width_s).sum())
        self.intervals += len(energy_j)
        if len(edges.t_s):
            self._add_exposed(self.exposed(stretch), sorted(set(edges.labels)), width_s, energy_j)
            for change in stretch.changes:
                self.changes[change] += 1.0
        else:
            label = edges.labels[0]
            self._product(label, label)[:] += width_s.sum()
            self.rates[:, label] += energy_j.sum()
        self._keep(stretch, max(edges.labels))

    def _add_exposed(
        self, exposed: Array, used: Sequence[int], width_s: Array, energy_j: Array
    ) -> None:
        """Add intervals with exposures to the phases in ``used``, (G, P, n)."""
        weighted = exposed / width_s
        self.rates[:, used] += (weighted @ energy_j)[:, used]
        rows = min(_ROWS, max(_MOST_MULTIPLICATIONS // exposed[:, 0].size, 1))
        while self._size % rows:
            rows -= 1
        for p, q in combinations_with_replacement(used, 2):
            parts = weighted[:, p].reshape(-1, rows, len(width_s))
            products = np.matmul(parts, exposed[:, q].T)
            self._product(p, q)[:] += products.reshape(self._size, self._size)

    def _product(self, p: int, q: int) -> Array:
        """Return the sums of products of two phases with p <= q."""
        if (p, q) not in self.products:
            self.products[p, q] = np.zeros((self._size, self._size))
        return self.products[p, q]

    def _make_room(self, count: int) -> None:
        more = count - self.count
        if more > 0:
            self.count = count
            self.changes = np.pad(self.changes, (0, more))
            self.rates = np.pad(self.rates, [(0, 0), (0, more)])

    def _keep(self, stretch: Stretch, label: int) -> None:
        kept = self._recent[label]
        kept.append(stretch)
        while sum(len(one.energy_j) for one in kept) - len(kept[0].energy_j) > _RECENT:
            kept.popleft()

    def exposed(self, stretch: Stretch) -> Array:
        """Return the exposures of n intervals to each phase at each grid point, (G, P, n)."""
        return self._exposed(stretch, self._delays_s)

    def exposed_for(self, stretch: Stretch, weights: Array) -> Array:
        """Return the exposures of n intervals to each phase for one candidate, (P, n).

        Args:
            stretch: the intervals.
            weights: weights of the points of the grid, (G,).
        """
        by_response = weights.reshape(self.responses, -1)
        used = by_response.any(axis=0)
        exposed = self._exposed(stretch, self._delays_s[used])
        mixed: Array = np.tensordot(by_response[:, used].ravel(), exposed, axes=(0, 0))
        return mixed

    def left_j(self, stretch: Stretch, weights: Array, levels_w: Array) -> Array:
        """Return the energy that the powers of the phases, (P,), leave in n intervals, J, (n,)."""
        left_j: Array = stretch.energy_j - levels_w @ self.exposed_for(stretch, weights)
        return left_j

    def _exposed(self, stretch: Stretch, delays_s: Array) -> Array:
        """Return exposures for each response and each of these delays, (responses x D, P, n)."""
        edges = stretch.edges
        exposed = np.zeros((self.responses * len(delays_s), self.count, len(stretch.energy_j)))
        if len(edges.t_s):
            since_s = stretch.t_s - edges.t_s[:, None] - delays_s[:, None, None]
            signs = edges.signs(self.count)
            exposures = self._exact if stretch.is_exact else self._exposures
            exposed = np.concatenate([signs @ one.after_jump(since_s) for one in exposures])
        exposed[:, edges.labels[0]] += np.diff(stretch.t_s)
        return exposed

    def exposure(self, stretch: Stretch) -> Exposure:
        """Return the function that computes exposures for the assumed response."""
        exposures = self._exact if stretch.is_exact else self._exposures
        return exposures[len(exposures) // 2]

    def shares_near_edges(self, stretch: Stretch, delay_s: float, half_s: float) -> Array:
        """Return the share of n intervals that is near each of m edges, (m, n).

        Args:
            stretch: the intervals.
            delay_s: delay of the device's edges.
            half_s: an interval is near an edge up to this long before and after the device's edge.
        """
        since_s = stretch.t_s - stretch.edges.t_s[:, None] - delay_s
        usual = self.exposure(stretch)
        near: Array = usual.after_jump(since_s + half_s) - usual.after_jump(since_s - half_s)
        return near / np.diff(stretch.t_s)
