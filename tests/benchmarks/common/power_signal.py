"""A piecewise-constant power signal, with its exact energy and its response in a sensor."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PowerSignal:
    """Power that is constant between two edges; defined from the first edge to the last one.

    Attributes:
        edges_s: times of the edges, in increasing order, (n + 1,).
        power_w: power between two edges, (n,).
    """

    edges_s: Array
    power_w: Array
    _energy_j: Array = field(init=False, repr=False)

    def __post_init__(self) -> None:
        rises_j = self.power_w * np.diff(self.edges_s)
        object.__setattr__(self, "_energy_j", np.concatenate([[0.0], np.cumsum(rises_j)]))

    def energy_to_j(self, t_s: Array | Sequence[float] | float) -> Array:
        """Return the energy from the first edge to each moment."""
        return np.asarray(np.interp(t_s, self.edges_s, self._energy_j))

    def energy_j(self, start_s: Array | float, end_s: Array | float) -> float:
        """Return the energy between two moments, or its sum over pairs of moments."""
        return float(np.sum(self.energy_to_j(end_s) - self.energy_to_j(start_s)))

    def filtered_w(self, t_s: Array, response_s: float) -> Array:
        """Return the output of a first-order filter, y' = (power - y) / response_s, at moments."""
        piece = np.clip(np.searchsorted(self.edges_s, t_s, side="right") - 1, 0, None)
        piece = np.minimum(piece, len(self.power_w) - 1)
        if response_s <= 0.0:
            return np.asarray(self.power_w[piece])
        at_edges_w = self._filtered_at_edges(response_s)
        kept = np.exp(-np.maximum(t_s - self.edges_s[piece], 0.0) / response_s)
        driven_w = self.power_w[piece]
        return np.asarray(driven_w + (at_edges_w[piece] - driven_w) * kept)

    def _filtered_at_edges(self, response_s: float) -> Array:
        kept = np.exp(-np.diff(self.edges_s) / response_s)
        filtered_w = [float(self.power_w[0])]
        for power_w, share in zip(self.power_w.tolist(), kept.tolist(), strict=True):
            filtered_w.append(power_w + (filtered_w[-1] - power_w) * share)
        return np.array(filtered_w)

    def mean_w(self, t_s: Array, window_s: float, response_s: float) -> Array:
        """Return the mean of ``filtered_w`` over the window that ends at each moment.

        The filtered power y satisfies y = power - response_s y', so its integral is the energy
        minus ``response_s`` times the increase of y.
        """
        if window_s <= 0.0:
            return self.filtered_w(t_s, response_s)
        before_s = t_s - window_s
        mean_w = (self.energy_to_j(t_s) - self.energy_to_j(before_s)) / window_s
        if response_s <= 0.0:
            return np.asarray(mean_w)
        rise_w = self.filtered_w(t_s, response_s) - self.filtered_w(before_s, response_s)
        return np.asarray(mean_w - response_s * rise_w / window_s)


def square(
    start_s: float, end_s: float, *, levels_w: tuple[float, float], turn_s: float, phase_s: float
) -> PowerSignal:
    """Return a square wave: the first level for the first half of each turn, from ``phase_s`` on.

    Args:
        start_s: first moment of the signal.
        end_s: last moment of the signal.
        levels_w: power in the first and in the second half of a turn.
        turn_s: duration of a turn.
        phase_s: time at which a turn begins.
    """
    half_s = turn_s / 2.0
    first = math.floor((start_s - phase_s) / half_s)
    numbers = np.arange(first, math.ceil((end_s - phase_s) / half_s) + 1)
    return PowerSignal(phase_s + numbers * half_s, np.array(levels_w)[numbers[:-1] % 2])
