"""Devices whose power is constant in each phase, and intervals of their energy curves."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from energy_callbacks.sensing.estimation.exposure import Exposure, Shape
from energy_callbacks.sensing.repeated_phases.phase_sums import Edges, PhaseSums, Stretch

Array = np.ndarray
COUNTER: Final = Shape(is_exact=True)
FILTER: Final = Shape(is_exact=False, response_s=0.015, assumed_response_s=0.015)


@dataclass(frozen=True)
class Steps:
    """Power that is constant between edges.

    Attributes:
        edges_s: moments at which power changes on the device, (m,).
        levels_w: power before the first edge and after each edge, (m + 1,).
    """

    edges_s: Array
    levels_w: Array

    def energy_to_j(self, t_s: Array) -> Array:
        """Energy from time 0."""
        knots_s = np.concatenate([[0.0], self.edges_s, [1e7]])
        knots_j = np.concatenate([[0.0], np.cumsum(np.diff(knots_s) * self.levels_w)])
        return np.interp(t_s, knots_s, knots_j)

    def filtered_w(self, t_s: Array, response_s: float) -> Array:
        """What a sensor with this time constant shows."""
        shown = np.full(len(t_s), float(self.levels_w[0]))
        for edge_s, jump_w in zip(self.edges_s, np.diff(self.levels_w), strict=True):
            shown += jump_w * -np.expm1(-np.maximum(t_s - edge_s, 0.0) / response_s)
        return shown


@dataclass(frozen=True)
class Repeated:
    """Phase 0 and phase 1 in turn: phase 1 begins at the even edges.

    Attributes:
        host_s: edges on the host, (m,).
        device: power of the device.
        end_s: end of the readings.
    """

    host_s: Array
    device: Steps
    end_s: float

    @property
    def labels(self) -> list[int]:
        """Phase before the first edge, and after each edge."""
        return [number % 2 for number in range(len(self.host_s) + 1)]

    @property
    def true_j(self) -> Array:
        """Energy of both phases between the edges of the device."""
        bounds_j = self.device.energy_to_j(
            np.concatenate([[0.0], self.device.edges_s, [self.end_s]])
        )
        energies_j = np.diff(bounds_j)
        return np.array([energies_j[0::2].sum(), energies_j[1::2].sum()])


def repeated(
    long_s: float,
    short_s: float,
    repeats: int,
    *,
    seed: int = 0,
    delays_s: Array | float = 0.0,
    levels_w: tuple[float, float] = (400.0, 100.0),
) -> Repeated:
    """Phases whose lengths vary by 3 %, on a device that trails the host by ``delays_s``."""
    lengths_s = np.array([long_s, short_s] * repeats)
    lengths_s *= np.random.default_rng(seed).uniform(0.97, 1.03, len(lengths_s))
    host_s = np.cumsum(lengths_s)
    powers_w = np.array([levels_w[number % 2] for number in range(len(host_s) + 1)])
    return Repeated(host_s, Steps(host_s + delays_s, powers_w), float(host_s[-1]) + long_s)


def counted(what: Repeated, width_s: float) -> tuple[Array, Array]:
    """Ends and energies of intervals between readings of a counter."""
    t_s = np.arange(0.0, what.end_s, width_s)
    return t_s, np.diff(what.device.energy_to_j(t_s))


def sampled(what: Repeated, width_s: float, response_s: float) -> tuple[Array, Array]:
    """Ends and energies of intervals between samples, computed as for a response of 15 ms."""
    t_s = np.arange(0.0, what.end_s, width_s)
    shown_w = what.device.filtered_w(t_s, response_s)
    mean_w = (shown_w[1:] + shown_w[:-1]) / 2.0
    return t_s, mean_w * width_s + FILTER.assumed_response_s * np.diff(shown_w)


def stretch(
    sums: PhaseSums,
    t_s: Array,
    energy_j: Array,
    edges_s: Array,
    labels: list[int],
    *,
    is_exact: bool,
) -> Stretch:
    """The intervals, with all edges on which they depend."""
    near_s = t_s[0] - sums.reach_s, t_s[-1] + sums.ahead_s
    first, last = np.searchsorted(edges_s, near_s)
    edges = Edges(t_s=edges_s[first:last], labels=labels[first : last + 1])
    return Stretch(t_s=t_s, energy_j=energy_j, edges=edges, is_exact=is_exact)


def summed(
    what: Repeated, shape: Shape, t_s: Array, energy_j: Array, *, batch: int = 32
) -> PhaseSums:
    """The sums over all intervals, in stretches of ``batch`` intervals."""
    sums = PhaseSums(shape)
    for start in range(0, len(energy_j), batch):
        part_j = energy_j[start : start + batch]
        part_s = t_s[start : start + len(part_j) + 1]
        sums.add(stretch(sums, part_s, part_j, what.host_s, what.labels, is_exact=shape.is_exact))
    return sums


def after_jump(exposure: Exposure, since_s: Array) -> Array:
    """Exposure of consecutive intervals to the time after an edge."""
    return exposure.between(since_s[:-1], since_s[1:])
