"""Measures the energy that a fit leaves at the edges between phases, by kind of edge.

A candidate (``edge_delays``) has one distribution of delays for all edges. If the delays of some
kind of edge are always longer, such as those from ``train`` to ``validation``, because the host
waits for the device at the end of a validation but not at the end of a training, or if all delays
are longer than the grid, then the energy left at each edge of a kind has the same sign.
"""

from typing import Final

import numpy as np

from energy_callbacks.sensing.estimation.phase_sums import PhaseSums
from energy_callbacks.sensing.estimation.series import Array

# The mean energy left at a kind of edge counts as far as it exceeds this many standard errors.
_INSIGNIFICANT: Final = 3.0
# With fewer edges of a kind, the standard error is not known, and the mean does not count.
_FEWEST: Final = 4
# Energy is counted up to these times beyond the range of the device's edges, s: edges that are
# outside of that range are usually outside by less. The largest energy counts.
_BEYOND_S: Final = (0.0, 0.1, 0.25)


def left_at_edges_j(
    sums: PhaseSums, weights: Array, levels_w: Array, delay_s: float, blur_s: float
) -> Array:
    """Return the mean energy left at an edge from one phase to another, J, (P, P).

    It is computed from the newest intervals, and 0 if it is not significant.

    Args:
        sums: the sums.
        weights: weights of the points of the grid, (G,).
        levels_w: power of each phase, (P,).
        delay_s: mean delay of the device's edges.
        blur_s: width of the distribution of delays.
    """
    halves_s = [blur_s / 2.0 + sums.mean_width_s + beyond_s for beyond_s in _BEYOND_S]
    left, squares = np.zeros((2, len(halves_s), sums.count, sums.count))
    count = np.zeros((sums.count, sums.count))
    for stretch in sums.recent:
        if not len(stretch.edges.t_s):
            continue
        left_j = sums.left_j(stretch, weights, levels_w)
        kinds = stretch.edges.labels[:-1], stretch.edges.labels[1:]
        for number, half_s in enumerate(halves_s):
            found_j = sums.shares_near_edges(stretch, delay_s, half_s) @ left_j
            np.add.at(left[number], kinds, found_j)
            np.add.at(squares[number], kinds, found_j**2)
        for change in stretch.changes:
            count[change] += 1.0
    count = np.maximum(count, 1.0)
    mean_j = left / count
    errors_j = np.sqrt(np.maximum(squares / count - mean_j**2, 0.0) / count)
    significant_j = (np.abs(mean_j) - _INSIGNIFICANT * errors_j) * (count >= _FEWEST)
    highest_j: Array = np.maximum(significant_j.max(axis=0), 0.0)
    return highest_j
