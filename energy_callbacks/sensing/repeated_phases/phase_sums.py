"""Sums over the intervals of an energy curve from which ``phase_fit`` computes energies of phases.

The exposure of an interval to a phase depends on the delay with which the device follows the host's
edges, and on the response of the sensor. Both are unknown. ``PhaseSums`` computes exposures for a
grid of delays and sums products for each pair of them. Exposures for other delays, for delays that
differ from edge to edge, and for other responses are linear combinations of those of the grid
(``edge_delays``), so the sums for them follow from the same products.
"""

import math
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations, repeat
from typing import Final

import numpy as np

from energy_callbacks.core.yielding import yield_if_due
from energy_callbacks.sensing.estimation.exposure import Exposure, Shape
from energy_callbacks.sensing.estimation.series import Array
from energy_callbacks.sensing.repeated_phases.edge_delays import delays_s
from energy_callbacks.sensing.repeated_phases.grid_sums import GridSums

# Number of the newest intervals that are kept for each phase, so that their noise can be computed.
_RECENT: Final = 2000
# A phase that is not longer than this, s, is not visible in readings.
_MOMENT_S: Final = 1e-3
# Edges count as measured if the delays of at most this share of them are unknown: the last ones,
# or those while a CUDA graph is captured.
_FEW_UNDATED: Final = 0.1
# Values with at most this time between two updates show an edge late by up to this time. How these
# delays are distributed is fitted: they are all alike if the edges keep step with the updates.
_LONGEST_UPDATE_S: Final = 0.04


@dataclass(frozen=True, slots=True, kw_only=True)
class Edges:
    """Changes of phase.

    Attributes:
        t_s: times of the changes, ascending, (m,): those of the device if they were measured,
            otherwise those of the host.
        labels: number of the phase before the first change, and after each change, (m + 1,).
        delays_s: measured delays of the device behind the host, which ``t_s`` includes, (m,); NaN
            where the delay was not measured; ``None`` if no delay was.
    """

    t_s: Array
    labels: Sequence[int]
    delays_s: Array | None = None

    def __len__(self) -> int:
        return len(self.t_s)

    def signs(self, count: int) -> Array:
        """Return 1 for the phase that each change begins and -1 for the one it ends, (count, m)."""
        unit, labels = np.eye(count), np.array(self.labels)
        return unit[:, labels[1:]] - unit[:, labels[:-1]]


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

    def __len__(self) -> int:
        return len(self.energy_j)

    def __deepcopy__(self, memo: object) -> "Stretch":
        """Return the stretch itself, because it never changes."""
        return self

    @property
    def changes(self) -> list[tuple[tuple[int, int], float]]:
        """Phases before and after each edge inside the intervals, if they differ; its delay."""
        labels = self.edges.labels
        first, last = np.searchsorted(self.edges.t_s, self.t_s[[0, -1]], side="right")
        pairs = zip(labels[first:last], labels[first + 1 : last + 1], strict=True)
        all_s = self.edges.delays_s
        delays_s = repeat(math.nan) if all_s is None else all_s[first:last].tolist()
        return [one for one in zip(pairs, delays_s, strict=False) if one[0][0] != one[0][1]]


class PhaseSums(GridSums):
    """Sums over the intervals of one device, for the delays of ``edge_delays.delays_s``.

    Their size depends on the number of phases, P, and not on the number of intervals.

    Args:
        shape: how energies depend on power.

    Attributes:
        is_exact: ``shape.is_exact``.
        response_s: assumed response time of the sensor; 0 for none.
        is_synchronous: whether each reading has the time of its value.
        exposures: exposures for the assumed response, of intervals of this shape and of exact ones.
        intervals: number of intervals.
        exact: number of intervals that contain the energy between their ends, as with a counter.
        changes: number of changes from one phase to another, (P, P).
        undated: number of those whose delay was not measured, (P, P).
        longest_delay_s: longest measured delay.
    """

    def __init__(self, shape: Shape) -> None:
        self.is_exact = shape.is_exact
        self.response_s = shape.response_s
        self.is_synchronous = not shape.period_s
        self._update_s = shape.period_s if shape.period_s <= _LONGEST_UPDATE_S else 0.0
        shape = replace(shape, period_s=shape.period_s - self._update_s)
        self._shapes = shape, Shape(is_exact=True)
        self.exposures = Exposure(shape), Exposure(self._shapes[1])
        self._delays_s = delays_s(self.response_s)
        super().__init__(len(self._delays_s))
        self.intervals = self.exact = 0
        self.changes = np.zeros((0, 0))
        self.undated = np.zeros((0, 0))
        self.longest_delay_s = 0.0
        # By the last of the phases in a stretch: phases are numbered as they begin, so phases with
        # high numbers are rare, and would else be gone when the noise is computed.
        self._recent: dict[int, deque[Stretch]] = defaultdict(deque)

    @property
    def reach_s(self) -> float:
        """Longest time from an edge to a later interval that depends on it, s."""
        return float(self._delays_s[-1]) + self.exposures[0].reach_s

    @property
    def ahead_s(self) -> float:
        """Longest time from an interval to a later edge on which it depends, s."""
        return self.exposures[0].ahead_s - float(self._delays_s[0])

    @property
    def recent(self) -> Iterator[Stretch]:
        """The newest stretches with each phase."""
        return chain.from_iterable(self._recent.values())

    @property
    def is_counted(self) -> bool:
        """Whether most intervals are exact."""
        return 2 * self.exact > self.intervals

    @property
    def update_s(self) -> float:
        """Time between two updates of the sensor; 0 if their delays are not fitted."""
        return 0.0 if self.is_counted else self._update_s

    @property
    def known_s(self) -> float:
        """Duration of all intervals."""
        return float(self.durations_s[0].sum())

    @property
    def mean_w(self) -> float:
        """Mean power."""
        return float(self.rates[0].sum()) / self.known_s

    @property
    def mean_width_s(self) -> float:
        """Mean width of an interval."""
        return self.known_s / self.intervals

    @property
    def lengths_s(self) -> Array:
        """Mean duration of each phase, (P,); infinite for phases that are not entered.

        Phases of a moment, which no reading can show, count as not entered.
        """
        entered, durations_s = self.changes.sum(axis=0), self.no_delay @ self.durations_s
        lengths_s = durations_s / np.maximum(entered, 1.0)
        return np.where((entered > 0.0) & (lengths_s > _MOMENT_S), lengths_s, math.inf)

    @property
    def shortest_s(self) -> float:
        """Mean duration of the phase whose mean duration is shortest; infinite without edges."""
        return float(np.min(self.lengths_s, initial=math.inf))

    @property
    def is_dated(self) -> bool:
        """Whether the delays of nearly all edges were measured, and ``t_s`` includes them.

        ``False`` for a sensor whose updates cause further delays.
        """
        is_dated = self.undated.sum() <= _FEW_UNDATED * self.changes.sum()
        return bool(is_dated) and not self.update_s

    @property
    def no_delay(self) -> Array:
        """Weights of the grid for no delay, (G,)."""
        weights: Array = np.eye(len(self._delays_s))[np.abs(self._delays_s).argmin()]
        return weights

    @property
    def proportional_j(self) -> Array:
        """Energies between the host's edges, divided in proportion to time, J, (P,)."""
        energies_j: Array = self.no_delay @ self.rates
        return energies_j

    def on_host_j(self, levels_w: Array) -> Array:
        """Return the energies of the phases between the host's edges, J, (n, P).

        Args:
            levels_w: n sets of powers of the phases, by which intervals with an edge are divided,
                (n, P).
        """
        return self.energies_j(self.no_delay[None], levels_w)

    def exposures_for(self, weights: Array) -> tuple[Exposure, Exposure]:
        """Return the exposures of one candidate: of intervals of this shape, and of exact ones.

        Args:
            weights: weights of the delays of the grid, (G,).
        """
        shape, exact = self._shapes
        yield_if_due()
        shaped = Exposure(shape, self._delays_s, weights)
        yield_if_due()
        return shaped, Exposure(exact, self._delays_s, weights)

    def add(self, stretch: Stretch) -> None:
        """Add consecutive intervals."""
        edges, energy_j, width_s = stretch.edges, stretch.energy_j, np.diff(stretch.t_s)
        self._make_room(max(edges.labels) + 1)
        self.square += float((energy_j**2 / width_s).sum())
        self.intervals += len(energy_j)
        self.exact += len(energy_j) * stretch.is_exact
        if len(edges.t_s):
            self._add_exposed(self.exposed(stretch), sorted(set(edges.labels)), width_s, energy_j)
            self.durations_s += self._durations_s(stretch).T
            for change, delay_s in stretch.changes:
                self.changes[change] += 1.0
                self.undated[change] += math.isnan(delay_s)
                self.longest_delay_s = np.fmax(self.longest_delay_s, delay_s)
        else:
            self.exposed_s[:, edges.labels[0]] += width_s.sum()
            self.durations_s[:, edges.labels[0]] += width_s.sum()
            self.rates[:, edges.labels[0]] += energy_j.sum()
        self._keep(stretch, max(edges.labels))

    def _add_exposed(
        self, exposed: Array, used: Sequence[int], width_s: Array, energy_j: Array
    ) -> None:
        """Add intervals with exposures to the phases in ``used``, (P, G, n)."""
        yield_if_due()
        self.exposed_s += exposed.sum(axis=-1).T
        self.rates += (exposed @ (energy_j / width_s)).T
        weighted = exposed / width_s
        for pair in combinations(used, 2):
            if pair not in self.products:
                self.products[pair] = np.zeros((len(self.rates), len(self.rates)))
            self.products[pair] += weighted[pair[0]] @ exposed[pair[1]].T

    def _make_room(self, count: int) -> None:
        more = count - self.count
        if more > 0:
            self.count = count
            self.changes = np.pad(self.changes, (0, more))
            self.undated = np.pad(self.undated, (0, more))
            self.exposed_s = np.pad(self.exposed_s, [(0, 0), (0, more)])
            self.durations_s = np.pad(self.durations_s, [(0, 0), (0, more)])
            self.rates = np.pad(self.rates, [(0, 0), (0, more)])

    def _keep(self, stretch: Stretch, label: int) -> None:
        kept = self._recent[label]
        kept.append(stretch)
        while sum(len(one.energy_j) for one in kept) - len(kept[0].energy_j) > _RECENT:
            kept.popleft()

    def exposed(self, stretch: Stretch) -> Array:
        """Return the exposures of n intervals to each phase for each delay, (P, G, n)."""
        edges = stretch.edges
        since_s = stretch.t_s - edges.t_s[:, None, None] - self._delays_s[:, None]
        exposure, width_s = self.exposures[stretch.is_exact], np.diff(stretch.t_s)
        exposed = exposure.after_jumps(since_s, width_s, edges.signs(self.count))
        exposed[edges.labels[0]] += width_s
        return exposed

    def _durations_s(self, stretch: Stretch) -> Array:
        """Return the time of each phase in a stretch for each delay, (P, G)."""
        whole = replace(stretch, t_s=stretch.t_s[[0, -1]], is_exact=True)
        return self.exposed(whole)[..., 0]
