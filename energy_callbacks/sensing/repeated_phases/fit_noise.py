"""Measures the noise of intervals from the energy that a fit of phases leaves in them."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from energy_callbacks.core.yielding import yield_if_due
from energy_callbacks.sensing.estimation.series import Array
from energy_callbacks.sensing.repeated_phases.phase_sums import PhaseSums
from energy_callbacks.sensing.repeated_phases.recent_intervals import RecentIntervals

# Numbers of intervals that are merged to measure noise that is correlated between intervals.
_MERGED: Final = (1, 4, 16)
# Index into _MERGED: at an edge, about four intervals are mixed.
_NEARBY: Final = 1
# An interval is mixed if at least this share of it is outside of its main phase.
_MIXED: Final = 0.02
# What is left in the mixed intervals of an edge has the same sign if the edge is early or late, so
# the square of its sum is larger than the sum of its squares by about this factor.
_ALIKE: Final = 2.0
# Noise that is assumed at least, as a share of the mean power in an interval: readings are rounded.
_LEAST_NOISE: Final = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Spectral densities of what the best fit leaves of the power, J^2/s.

    Attributes:
        by_phase: density in each phase, (P,).
        roughness: share of it that is seen in single intervals, (P,): 1 for white noise, less for
            power that changes slowly.
        at_edges: density in the few intervals around an edge.
        at_edge_j2: mean square of the energy that is left at an edge, and that power which varies
            inside of the phases does not explain, J^2.
    """

    by_phase: Array
    roughness: Array
    at_edges: float
    at_edge_j2: float

    @property
    def highest(self) -> float:
        """The highest of the densities."""
        return float(max(self.by_phase.max(), self.at_edges))


def noise_of(sums: PhaseSums, recent: RecentIntervals, exposed: Array, left_j: Array) -> Noise:
    """Return the noise of what a fit leaves; for the arguments, see ``unexplained``."""
    least = (_LEAST_NOISE * sums.mean_w) ** 2 * sums.mean_width_s
    densities = np.array([_density(recent, exposed, left_j, merge) for merge in _MERGED])
    densities = np.maximum(densities, least)
    lasting = densities.max(axis=0)
    mixed_ones = is_mixed(recent, exposed)
    mixed_j2 = left_j[mixed_ones] ** 2
    mixed = float((mixed_j2 / recent.width_s[mixed_ones]).sum()) / max(len(mixed_j2), 1)
    of_power_j2 = _of_power_j2(recent, exposed, left_j, mixed_ones)
    by_edges_j2 = max(float(mixed_j2.sum()) - of_power_j2, 0.0)
    return Noise(
        by_phase=lasting,
        roughness=densities[0] / lasting,
        at_edges=max(mixed, float(densities[_NEARBY].max())),
        at_edge_j2=_ALIKE * by_edges_j2 / max(recent.changes.sum(), 1.0),
    )


def _of_power_j2(
    recent: RecentIntervals, exposed: Array, left_j: Array, mixed: NDArray[np.bool_]
) -> float:
    """Return the sum of squares that varying power leaves in mixed intervals at least, J^2.

    It is known from intervals that are not even next to an edge, whose place may be wrong: power
    varies by as much near edges as elsewhere.
    """
    is_far = ~mixed
    is_far[1:] &= ~mixed[:-1]
    is_far[:-1] &= ~mixed[1:]
    left_w2 = (left_j[is_far] / recent.width_s[is_far]) ** 2
    phase = exposed[:, is_far].argmax(axis=0)
    sums_w2, counts = (np.bincount(phase, one, len(exposed)) for one in (left_w2, None))
    return float((sums_w2 / np.maximum(counts, 1.0)) @ (exposed[:, mixed] ** 2).sum(axis=1))


def is_mixed(recent: RecentIntervals, exposed: Array) -> NDArray[np.bool_]:
    """Return whether each interval has an edge inside, or shows one by the sensor's response."""
    mixed: NDArray[np.bool_] = exposed.max(axis=0) < (1.0 - _MIXED) * recent.width_s
    return mixed


def _density(recent: RecentIntervals, exposed: Array, left_j: Array, merge: int) -> Array:
    """Return the mean square per second of what is left in merged intervals, by phase, (P,)."""
    yield_if_due()
    starts = (recent.place % merge == 0).nonzero()[0]
    wide_s = np.add.reduceat(recent.width_s, starts)
    shares = np.abs(np.add.reduceat(exposed, starts, axis=1)) / wide_s
    squares = np.add.reduceat(left_j, starts) ** 2 / wide_s
    density: Array = shares @ squares / np.maximum(shares.sum(axis=1), 1e-9)
    return density


def unexplained(sums: PhaseSums, recent: RecentIntervals, exposed: Array, left_j: Array) -> Array:
    """Return the share of the squared changes of power between readings that is left, (P,).

    It is 1 if values are read at times unrelated to their updates, because their exposures are only
    known in the mean, and with a counter alone.

    Args:
        sums: sums over all intervals.
        recent: the newest N intervals.
        exposed: their exposures, (P, N).
        left_j: energy that the fit leaves in them, (N,).
    """
    if not sums.is_synchronous:
        return np.ones(sums.count)
    used = (recent.place[1:] > 0) & ~recent.is_exact[1:]
    changes_w, left_w = (
        np.diff(energy_j / recent.width_s)[used] ** 2 for energy_j in (recent.energy_j, left_j)
    )
    in_phase = (np.abs(exposed) / recent.width_s)[:, 1:][:, used]
    left, changes = in_phase @ left_w, in_phase @ changes_w
    shares: Array = np.where(left < changes, left / np.maximum(changes, 1e-9), 1.0)
    return shares
