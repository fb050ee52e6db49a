"""Computes how much each phase of a step contributes to each reading of a slow power sensor."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from energy_callbacks.sensing.estimation.series import Array

Numbers = NDArray[np.intp]
# Shorter time constants are replaced by this value, because a divisor must not be 0.
SHORTEST_RESPONSE_S: Final = 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class Spans:
    """Consecutive time spans: span ``i`` lasts from ``edges_s[i]`` to ``edges_s[i + 1]``.

    Attributes:
        edges_s: start of each span, and end of the last span, ascending, (n + 1,).
        labels: number of the phase of each span, (n,); -1 for a span outside all phases.
        count: number of phases.
    """

    edges_s: Array
    labels: Numbers
    count: int

    def times_s(self) -> Array:
        """Return the total time of each phase in seconds, (count,)."""
        times_s: Array = np.diff(self.edges_s) @ self._one_hot()
        return times_s

    def exposures(self, t_s: Array, response_s: float, window_s: Array | None = None) -> Array:
        """Return the share of each phase in each reading, (m, count)."""
        return self.seen(self._one_hot(), t_s, response_s, window_s)

    def seen(
        self, levels: Array, t_s: Array, response_s: float, window_s: Array | None = None
    ) -> Array:
        """Return the readings of signals that are constant in each span, (m, signals).

        A reading is the output of a first-order filter of the signal, averaged over a time that
        ends at the reading.

        Args:
            levels: value of each signal in each span, (n, signals).
            t_s: times of the readings, which must be inside the spans, (m,).
            response_s: time constant of the filter in seconds.
            window_s: length of the averaging time of each reading, (m,); ``None`` for instantaneous
                readings.
        """
        response_s = max(response_s, SHORTEST_RESPONSE_S)
        states = self._states(levels, response_s)
        if window_s is None:
            return self._at(t_s, levels, states, response_s)
        # By the filter's equation, response * x' = u - x with input u and output x, the integral of
        # x follows from the integral of u and the change of x.
        begin_s = t_s - window_s
        sums = self._sums(levels, t_s) - self._sums(levels, begin_s)
        change = self._at(t_s, levels, states, response_s)
        change -= self._at(begin_s, levels, states, response_s)
        return (sums - response_s * change) / window_s[:, None]

    def known_s(self, start_s: Array, end_s: Array) -> Array:
        """Return how many seconds from ``start_s[i]`` to ``end_s[i]`` are inside phases, (m,)."""
        is_known = (self.labels >= 0).astype(np.float64)[:, None]
        known_s: Array = (self._sums(is_known, end_s) - self._sums(is_known, start_s))[:, 0]
        return known_s

    def _one_hot(self) -> Array:
        """Return the one-hot encoding of labels, (n, count); label -1 becomes a row of zeros."""
        return np.equal.outer(self.labels, np.arange(self.count)).astype(np.float64)

    def _states(self, levels: Array, response_s: float) -> Array:
        """Return the filter's output at each edge, (n + 1, signals); it is 0 at the first edge."""
        from scipy.linalg.lapack import dtbtrs

        decays = -np.diff(self.edges_s) / response_s
        gains = np.zeros((levels.shape[1], len(self.edges_s)))
        np.multiply(-np.expm1(decays), levels.T, out=gains[:, 1:])
        # Each state is a part of the previous state, plus a gain. This is a system of equations
        # whose matrix has ones in the diagonal (which are not read), and minus these parts below.
        bands = np.zeros((len(self.edges_s), 2))
        bands[:-1, 1] = -np.exp(decays)
        states: Array = dtbtrs(bands.T, gains.T, uplo="L", diag="U", overwrite_b=True)[0]
        return states

    def _at(self, t_s: Array, levels: Array, states: Array, response_s: float) -> Array:
        """Return the filter's output at the times ``t_s``, (m, signals)."""
        span = np.searchsorted(self.edges_s, t_s, "right") - 1
        span = np.clip(span, 0, len(self.labels) - 1)
        kept = np.exp(-(t_s - self.edges_s[span]) / response_s)[:, None]
        outputs: Array = states[span] * kept + levels[span] * (1.0 - kept)
        return outputs

    def _sums(self, levels: Array, t_s: Array) -> Array:
        """Return the integral of each signal until the times ``t_s``, (m, signals)."""
        widths_s = np.diff(self.edges_s)[:, None] * levels
        sums_s = np.cumsum(np.vstack([np.zeros(levels.shape[1]), widths_s]), axis=0)
        return np.column_stack([np.interp(t_s, self.edges_s, column) for column in sums_s.T])
