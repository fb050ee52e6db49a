"""Measures the energy that a fit leaves at the edges between phases, by kind of edge.

A candidate (``edge_delays``) has one distribution of delays for all edges. If the delays of some
kind of edge are always longer, such as those from ``train`` to ``validation``, because the host
waits for the device at the end of a validation but not at the end of a training, or if all delays
are longer than the grid, then the energy left at each edge of a kind has the same sign.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from energy_callbacks.sensing.estimation.exposure import Exposure
from energy_callbacks.sensing.estimation.series import Array
from energy_callbacks.sensing.repeated_phases.recent_intervals import RecentIntervals

# With fewer edges of a kind, the standard error is not known, and the mean does not count.
_FEWEST: Final = 4
BEYOND_S: Final = (0.0, 0.1, 0.25)
"""Times by which edges may be outside of the assumed range of the device's edges, s.

Edges outside of that range are usually outside by less.
"""


def left_at_edges_j(
    recent: RecentIntervals,
    exposures: Sequence[Exposure],
    left_j: Array,
    delay_s: float,
    half_s: float,
    *,
    errors: Sequence[float],
    beyond_s: Sequence[float] = BEYOND_S,
) -> Array:
    """Return the mean energy left at an edge from one phase to another, J, (E, P, P).

    It is reduced by each of E numbers of its standard errors.

    Args:
        recent: the newest intervals.
        exposures: exposures for the assumed response, of intervals of the sensor and of exact ones.
        left_j: energy that the fit leaves in each of them, (N,).
        delay_s: mean delay of the device's edges.
        half_s: range of the device's edges before and after ``delay_s``.
        errors: the numbers of standard errors, (E,).
        beyond_s: energy is counted up to these times beyond the range; the largest counts.
    """
    count = np.maximum(recent.changes, 1.0)
    highest_j = np.zeros((len(errors), *count.shape))
    for more_s in beyond_s:
        left, squares = recent.near_edges(exposures, delay_s, half_s + more_s, left_j)
        mean_j = left / count
        errors_j = np.sqrt(np.maximum(squares / count - mean_j**2, 0.0) / count)
        significant_j = np.abs(mean_j) - np.multiply.outer(errors, errors_j)
        highest_j = np.maximum(highest_j, significant_j * (recent.changes >= _FEWEST))
    return highest_j
