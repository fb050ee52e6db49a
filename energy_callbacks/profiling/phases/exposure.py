"""How much of each reading of a slow sensor belongs to each phase."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from energy_callbacks.sensing.estimation.series import Array

Numbers = NDArray[np.intp]
# Of a share of one, a double does not show what is smaller.
_FORGOTTEN: Final = 1e-18
SHORTEST_RESPONSE_S: Final = 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class Spans:
    """Which phase was going on when: ``labels[i]`` from ``edges_s[i]`` to ``edges_s[i + 1]``.

    Attributes:
        edges_s: ascending, (n + 1,).
        labels: number of a phase, (n,); -1 for none of them.
        count: how many phases there are.
    """

    edges_s: Array
    labels: Numbers
    count: int

    def times_s(self) -> Array:
        """Seconds of each phase, (count,)."""
        widths_s = np.diff(self.edges_s)
        is_known = self.labels >= 0
        return np.bincount(self.labels[is_known], widths_s[is_known], self.count).astype(np.float64)

    def exposures(self, t_s: Array, response_s: float, window_s: Array | None = None) -> Array:
        """Share of each phase in readings at moments inside the spans, (m, count).

        A reading is the mean, over the window before it, (m,), of power behind a first-order
        filter; ``None`` for readings that are points.
        """
        response_s = max(response_s, SHORTEST_RESPONSE_S)
        states = self._states(response_s)
        if window_s is None:
            return self._at(t_s, states, response_s)
        # The filter's own equation, tau x' = u - x, gives the integral of x without another sum.
        early_s = t_s - window_s
        passed_s = self._passed(t_s) - self._passed(early_s)
        kept = self._at(t_s, states, response_s) - self._at(early_s, states, response_s)
        return (passed_s - response_s * kept) / window_s[:, None]

    def known_s(self, start_s: Array, end_s: Array) -> Array:
        """Seconds between two moments in which some phase went on, (m,)."""
        known_s: Array = (self._passed(end_s) - self._passed(start_s)).sum(axis=1)
        return known_s

    def _states(self, response_s: float) -> Array:
        """The filter at each edge, (n + 1, count): at rest before the first."""
        widths_s = np.diff(self.edges_s)
        gains = np.zeros((len(widths_s), self.count))
        known = np.flatnonzero(self.labels >= 0)
        gains[known, self.labels[known]] = -np.expm1(-widths_s[known] / response_s)
        # Each state is ``kept`` times the one before, and a gain: after each round of two spans
        # taken together, then four, then eight, until nothing of before is left.
        kept = np.exp(-widths_s / response_s)[:, None]
        back = 1
        while back < len(gains) and kept[back:].max() > _FORGOTTEN:
            gains[back:] = gains[back:] + kept[back:] * gains[:-back]
            kept[back:] = kept[back:] * kept[:-back]
            back *= 2
        return np.concatenate([np.zeros((1, self.count)), gains])

    def _place(self, t_s: Array) -> Numbers:
        found = np.searchsorted(self.edges_s, t_s, "right") - 1
        inside: Numbers = np.clip(found, 0, len(self.labels) - 1)
        return inside

    def _at(self, t_s: Array, states: Array, response_s: float) -> Array:
        at = self._place(t_s)
        kept = np.exp(-(t_s - self.edges_s[at]) / response_s)
        values = states[at] * kept[:, None]
        known = np.flatnonzero(self.labels[at] >= 0)
        values[known, self.labels[at[known]]] += 1.0 - kept[known]
        return values

    def _passed(self, t_s: Array) -> Array:
        """Seconds of each phase up to a moment, (m, count)."""
        widths_s = np.diff(self.edges_s)
        sums = np.zeros((len(self.edges_s), self.count))
        known = np.flatnonzero(self.labels >= 0)
        sums[known + 1, self.labels[known]] = widths_s[known]
        sums = np.cumsum(sums, axis=0)
        at = self._place(t_s)
        values = sums[at]
        known = np.flatnonzero(self.labels[at] >= 0)
        values[known, self.labels[at[known]]] += t_s[known] - self.edges_s[at[known]]
        return values
