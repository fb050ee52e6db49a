"""What the best setting is: four objectives, and how much worse than the best a setting is."""

from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from energy_callbacks.powercap.search.card_model import Array
from energy_callbacks.powercap.search.posterior import Curves

# A setting that exceeds the constraint by 1 % counts as much as one that costs this many times 1 %.
_OVERSHOOT: Final = 3.0


class Objective(Protocol):
    """The cost of a setting, which is to be lowest, and a constraint."""

    def costs(self, curves: Curves) -> Array:
        """Return the costs, (draws, m)."""
        ...

    def excesses(self, curves: Curves) -> Array:
        """Return by how much the constraint is exceeded, relative, (draws, m); negative if met."""
        ...


@dataclass(frozen=True, slots=True)
class MinEnergy:
    """Least energy, whatever the duration."""

    def costs(self, curves: Curves) -> Array:
        """Return the energy of a step, J."""
        return curves.step_j

    def excesses(self, curves: Curves) -> Array:
        """Return zeros: there is no constraint."""
        return np.zeros_like(curves.step_j)


@dataclass(frozen=True, slots=True)
class MaxSlowdown(MinEnergy):
    """Least energy, with steps that are at most this fraction slower than at the found setting.

    Attributes:
        fraction: largest slowdown; 0.05 for 5 %.
    """

    fraction: float

    def excesses(self, curves: Curves) -> Array:
        """Return the slowdown above the largest one."""
        found_s = curves.step_s[:, curves.found, None]
        return np.asarray(curves.step_s / found_s - 1.0 - self.fraction)


@dataclass(frozen=True, slots=True)
class ZeusCost(MinEnergy):
    """Least cost ``eta`` x energy + (1 - ``eta``) x highest power x duration.

    This is the cost of Zeus (You, Chung, Chowdhury, NSDI 2023).

    Attributes:
        eta: weight of the energy, 0 to 1.
        max_power_w: highest power of all cards together, W.
    """

    eta: float
    max_power_w: float

    def costs(self, curves: Curves) -> Array:
        """Return the costs, J."""
        time_cost = (1.0 - self.eta) * self.max_power_w * curves.step_s
        return np.asarray(self.eta * curves.step_j + time_cost)


@dataclass(frozen=True, slots=True)
class PowerCap:
    """Fastest steps, with a mean power of all cards together that is at most this.

    Attributes:
        watts: largest mean power, W.
    """

    watts: float

    def costs(self, curves: Curves) -> Array:
        """Return the duration of a step, s."""
        return curves.step_s

    def excesses(self, curves: Curves) -> Array:
        """Return the power above the cap, relative to the cap."""
        return np.asarray(curves.step_j / curves.step_s / self.watts - 1.0)


def losses(objective: Objective, curves: Curves) -> tuple[Array, Array]:
    """Return how much worse than the best each setting is, and its excess, both (draws, m).

    The loss is the relative excess of the cost over that of the best setting which meets the
    constraint; it is negative for settings that only a violation makes cheap. If no setting meets
    the constraint, the best one is the one with the least excess.
    """
    costs, excesses = objective.costs(curves), objective.excesses(curves)
    excesses = excesses - np.maximum(excesses.min(axis=1, keepdims=True), 0.0)
    best = np.where(excesses <= 0.0, costs, np.inf).min(axis=1, keepdims=True)
    return np.asarray(costs / best - 1.0), np.asarray(excesses)


def regrets(objective: Objective, curves: Curves) -> Array:
    """Return the loss of each setting including the penalty for its excess, (draws, m)."""
    found, excesses = losses(objective, curves)
    return np.asarray(np.maximum(found, 0.0) + _OVERSHOOT * np.maximum(excesses, 0.0))
