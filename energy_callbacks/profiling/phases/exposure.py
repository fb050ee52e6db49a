"""Computes how much each phase of a step contributes to each reading of a slow power sensor."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from energy_callbacks.sensing.estimation.series import Array

Numbers = NDArray[np.intp]
# A term below this share of 1.0 is lost in double precision.
_NEGLIGIBLE: Final = 1e-18
SHORTEST_RESPONSE_S: Final = 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class Spans:
    """Consecutive time spans: phase ``labels[i]`` runs from ``edges_s[i]`` to ``edges_s[i + 1]``.

    Attributes:
        edges_s: ascending, (n + 1,).
        labels: number of the phase, (n,); -1 for a span outside all phases.
        count: number of phases.
    """

    edges_s: Array
    labels: Numbers
    count: int

    def times_s(self) -> Array:
        """Return the total time of each phase in seconds, (count,)."""
        times_s: Array = np.diff(self.edges_s) @ self._one_hot(self.labels)
        return times_s

    def exposures(self, t_s: Array, response_s: float, window_s: Array | None = None) -> Array:
        """Return the share of each phase in readings at moments inside the spans, (m, count).

        A reading is power behind a first-order filter, averaged over the window before it.

        Args:
            t_s: moments of the readings, (m,).
            response_s: time constant of the filter.
            window_s: length of each window, (m,); ``None`` for instantaneous readings.
        """
        response_s = max(response_s, SHORTEST_RESPONSE_S)
        states = self._states(response_s)
        if window_s is None:
            return self._at(t_s, states, response_s)
        # The filter's equation, tau x' = u - x, gives the integral of x from that of u.
        begin_s = t_s - window_s
        active_s = self._active_s(t_s) - self._active_s(begin_s)
        change = self._at(t_s, states, response_s) - self._at(begin_s, states, response_s)
        return (active_s - response_s * change) / window_s[:, None]

    def known_s(self, start_s: Array, end_s: Array) -> Array:
        """Return the seconds that belong to any phase between pairs of moments, (m,)."""
        known_s: Array = (self._active_s(end_s) - self._active_s(start_s)).sum(axis=1)
        return known_s

    def _one_hot(self, labels: Numbers) -> Array:
        """Return 1.0 where a label is the number of the column, else 0.0, (n, count)."""
        return np.equal.outer(labels, np.arange(self.count)).astype(np.float64)

    def _states(self, response_s: float) -> Array:
        """Return the filter's output at each edge, (n + 1, count); it starts at zero."""
        decays = -np.diff(self.edges_s)[:, None] / response_s
        gains = -np.expm1(decays) * self._one_hot(self.labels)
        # Each state is ``kept`` times the previous one plus a gain. Each round combines pairs of
        # spans, then fours, then eights, until nothing is left of the earlier state.
        kept = np.exp(decays)
        back = 1
        while back < len(gains) and kept[back:].max() > _NEGLIGIBLE:
            gains[back:] = gains[back:] + kept[back:] * gains[:-back]
            kept[back:] = kept[back:] * kept[:-back]
            back *= 2
        return np.concatenate([np.zeros((1, self.count)), gains])

    def _at(self, t_s: Array, states: Array, response_s: float) -> Array:
        """Return the filter's output at moments, (m, count)."""
        span = np.searchsorted(self.edges_s, t_s, "right") - 1
        span = np.clip(span, 0, len(self.labels) - 1)
        kept = np.exp(-(t_s - self.edges_s[span]) / response_s)[:, None]
        outputs: Array = states[span] * kept + self._one_hot(self.labels[span]) * (1.0 - kept)
        return outputs

    def _active_s(self, t_s: Array) -> Array:
        """Return the seconds that each phase was active before moments, (m, count)."""
        widths_s = np.diff(self.edges_s)[:, None] * self._one_hot(self.labels)
        sums_s = np.cumsum(np.vstack([np.zeros(self.count), widths_s]), axis=0)
        return np.column_stack([np.interp(t_s, self.edges_s, column) for column in sums_s.T])
