"""The power limit of the card alone: it follows the cap, and nothing else changes."""

import math

from energy_callbacks.inference.control import reference
from energy_callbacks.inference.control.protocols import (
    Abilities,
    Need,
    OperatingPoint,
    Tenants,
    Window,
)
from energy_callbacks.inference.planner.problem import Problem
from energy_callbacks.inference.protocols import PredictionModel
from energy_callbacks.inference.records import Configuration


class PowerLimit:
    """Sets the power limit to the cap, within the limits of the card.

    Args:
        problem: models and batches.
        model: not used.
        partition: tenants; by default one for each model, with equal shares of the whole GPU and
            the largest batch.
    """

    name = "powercap"
    needs: frozenset[Need] = frozenset({"limit"})

    def __init__(
        self, problem: Problem, model: PredictionModel, *, partition: Tenants | None = None
    ) -> None:
        del model
        self.degraded = ""
        self._tenants = partition or _largest(problem)
        self._abilities = Abilities(can=frozenset())

    def start(self, cap_w: float, abilities: Abilities) -> OperatingPoint:
        """See ``Controller``."""
        self._abilities = abilities
        self.degraded = reference.degraded(abilities, {"limit": "the power is not limited"})
        return self.cap_changed(cap_w)

    def cap_changed(self, cap_w: float) -> OperatingPoint:
        """See ``Controller``."""
        limit_w = reference.limit(self._abilities, cap_w)
        if limit_w is not None:
            self.degraded = _difference(limit_w, cap_w)
        self._point = OperatingPoint(
            configuration=Configuration(tenants=self._tenants, power_limit_w=limit_w)
        )
        return self._point

    def step(self, window: Window) -> OperatingPoint:
        """See ``Controller``; the point stays."""
        del window
        return self._point


def _difference(limit_w: float, cap_w: float) -> str:
    if math.isclose(limit_w, cap_w):
        return ""
    return f"the card accepts no limit of {cap_w:g} W; the limit is {limit_w:g} W"


def _largest(problem: Problem) -> Tenants:
    tenants = reference.whole_gpu(problem, problem.batches[0])
    return reference.with_batch(tenants, max(reference.fitting(problem, tenants, problem.batches)))
