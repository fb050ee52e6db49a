"""PctoDL's baseline DirectCap: its plan, a power limit at the cap, and the best memory clock.

The clocks of the multiprocessors are free. After five windows with more than 102 % of the cap, the
memory clock is one step lower. Then each memory clock is tried for five windows, and the one with
the most throughput in its last window below the cap stays. Written from the published text.
"""

from dataclasses import replace
from typing import Final

from energy_callbacks.inference.control import reference
from energy_callbacks.inference.control.levels import values
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

_ABOVE: Final = 1.02
_WINDOWS: Final = 5
_LOWEST_MHZ: Final = 5001.0  # lower memory clocks are not tried


class DirectCap:
    """Plans once, and lets the power limit do the rest.

    Args:
        problem: models and limits.
        model: the predictor.
        partition: tenants; by default those of the published greedy plan.
    """

    name = "directcap"
    needs: frozenset[Need] = frozenset({"partition", "batch", "limit", "memory_clock"})

    def __init__(
        self, problem: Problem, model: PredictionModel, *, partition: Tenants | None = None
    ) -> None:
        self.degraded = ""
        self._problem = problem
        self._model = model
        self._tenants = partition
        self._tiers: list[float] = []

    def start(self, cap_w: float, abilities: Abilities) -> OperatingPoint:
        """See ``Controller``."""
        self.degraded = reference.degraded(
            abilities,
            {
                "limit": "only the plan keeps the power below the cap",
                "memory_clock": "it stays as it is",
            },
        )
        self._abilities = abilities
        if "memory_clock" in abilities.can:
            tiers = values(abilities, "memory_clock", 1.0)
            self._tiers = [one for one in tiers if one >= min(_LOWEST_MHZ, tiers[-1])]
        if self._tenants is None:
            ladder = reference.clocks(abilities)
            found = reference.planned(self._problem, self._model, cap_w, ladder)
            self._tenants = found.tenants
        self._tier = len(self._tiers) - 1
        return self.cap_changed(cap_w)

    def cap_changed(self, cap_w: float) -> OperatingPoint:
        """See ``Controller``; the plan stays, as in the published program."""
        self._cap_w = cap_w
        self._limit_w = reference.limit(self._abilities, cap_w)
        self._above = 0
        self._tried: dict[int, float] = {}
        self._left: list[int] = []
        self._windows = 0
        return self._point

    def step(self, window: Window) -> OperatingPoint:
        """See ``Controller``."""
        if len(self._tiers) < 2:
            return self._point
        if self._left:
            self._explore(window)
        else:
            self._above = self._above + 1 if window.power_mean_w > _ABOVE * self._cap_w else 0
            if self._above >= _WINDOWS and not self._tried:
                self._tier = max(self._tier - 1, 0)
                self._left = [self._tier, *(x for x in range(len(self._tiers)) if x != self._tier)]
                self._windows = 0
        return self._point

    def _explore(self, window: Window) -> None:
        """Count the windows of a memory clock; after its last one, go on to the next."""
        self._windows += 1
        if self._windows < _WINDOWS:
            return
        is_below = window.power_mean_w <= _ABOVE * self._cap_w
        self._tried[self._left.pop(0)] = window.throughput_per_s if is_below else 0.0
        self._windows = 0
        best = max(self._tried, key=lambda one: (self._tried[one], -one))
        self._tier = self._left[0] if self._left else best

    @property
    def _point(self) -> OperatingPoint:
        configuration = Configuration(tenants=self._tenants or (), power_limit_w=self._limit_w)
        if self._tiers:
            configuration = replace(configuration, mem_mhz=self._tiers[self._tier])
        return OperatingPoint(configuration=configuration)
