"""PctoDL's controller: its greedy plan, and a clock that follows the cap in three stages.

After a change of the cap, the clock is the inverse of a power law. Farther than 7 W from the cap,
it changes by 0.8 times the distance over the slope of the law; nearer, by one step of 15 MHz::

    P(f) = P(f_min) + (P(f_max) - P(f_min)) * x ** g,   x = (f - f_min) / (f_max - f_min)

``faithful=True`` controls the highest reading of a window and never rests, as the published
program does. By default these defects are fixed: the mean power of a window is controlled; within
a step of the cap the clock rests; and a clock between two steps is rounded down, never up. Written
from the published text.
"""

import math
from typing import Final

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

# The published exponents of power are 1.13 to 1.26 on an A100, and 1.04 to 1.33 on an RTX 3080 Ti.
_EXPONENT: Final = 1.2
_ETA: Final = 0.8
_NEAR_W: Final = 7.0
_LEAST_MHZ: Final = 15.0
_MOST_MHZ: Final = 300.0
# Room for the noise of a window when the fixed law raises the clock: the sensor error of the
# planner, relative to the cap.
_ROOM: Final = 0.007
_LEAST_X: Final = 0.02  # where the slope of the law is not near zero or infinite


class PctoDl:
    """Plans by PctoDL's greedy algorithm, and follows the cap with the clock.

    Args:
        problem: models and limits.
        model: the predictor.
        partition: tenants; by default those of the greedy plan for each cap.
        faithful: whether the control law is the published one with its defects.
    """

    name = "pctodl"
    needs: frozenset[Need] = frozenset({"partition", "batch", "clock"})

    def __init__(
        self,
        problem: Problem,
        model: PredictionModel,
        *,
        partition: Tenants | None = None,
        faithful: bool = False,
    ) -> None:
        self.degraded = ""
        self._problem = problem
        self._model = model
        self._fixed = partition
        self._tenants: Tenants = partition or ()
        self._faithful = faithful
        self._ladder: list[float] = []
        self._clock_mhz = self._low_w = 0.0
        self._work_w = 1.0

    def start(self, cap_w: float, abilities: Abilities) -> OperatingPoint:
        """See ``Controller``."""
        self.degraded = self._without = reference.degraded(
            abilities,
            {
                "clock": "only the plan keeps the power below the cap",
                "partition": "the tenants stay as they are",
            },
        )
        ladder = reference.clocks(abilities)
        self._ladder = ladder if len(ladder) > 1 else []  # one clock cannot follow the cap
        self._can_plan = self._fixed is None and "partition" in abilities.can
        if not self._tenants and not self._can_plan:
            raise ValueError(
                "the plant cannot change its partition, and none is given; give the tenants that "
                "it has"
            )
        if self._can_plan:
            self._tenants = self._planned(cap_w)
        return self._feed_forward(cap_w)

    def cap_changed(self, cap_w: float) -> OperatingPoint:
        """See ``Controller``; if no plan is found for the cap, the tenants stay."""
        if self._can_plan:
            self.degraded = self._without
            try:
                self._tenants = self._planned(cap_w)
            except ValueError as error:
                self.degraded = "; ".join(filter(None, (self._without, str(error))))
        return self._feed_forward(cap_w)

    def step(self, window: Window) -> OperatingPoint:
        """See ``Controller``."""
        if self._ladder and window.is_steady:
            power_w = window.power_max_w if self._faithful else window.power_mean_w
            self._clock_mhz = self._within(self._clock_mhz + self._change_mhz(power_w))
        return self._point

    def _planned(self, cap_w: float) -> Tenants:
        return reference.planned(self._problem, self._model, cap_w, self._ladder).tenants

    def _feed_forward(self, cap_w: float) -> OperatingPoint:
        """Return the point whose clock is the inverse of the power law."""
        self._cap_w = cap_w
        if self._ladder:
            ends = (self._ladder[0], self._ladder[-1])
            found = self._model.predict_many(
                [Configuration(tenants=self._tenants, sm_mhz=one) for one in ends]
            )
            self._low_w, high_w = (one.power_w.value for one in found)
            self._work_w = max(high_w - self._low_w, 1.0)
            part = min(max((cap_w - self._low_w) / self._work_w, 0.0), 1.0)
            self._clock_mhz = self._within(
                ends[0] + (ends[1] - ends[0]) * part ** (1.0 / _EXPONENT)
            )
        return self._point

    def _change_mhz(self, power_w: float) -> float:
        error_w = self._cap_w - power_w
        if abs(error_w) > _NEAR_W:
            change = min(max(_ETA * abs(error_w) / self._slope(), _LEAST_MHZ), _MOST_MHZ)
            return math.copysign(change, error_w)
        if error_w <= 0.0:
            return -_LEAST_MHZ
        needed_w = self._slope() * _LEAST_MHZ + _ROOM * self._cap_w
        return _LEAST_MHZ if self._faithful or error_w > needed_w else 0.0

    def _slope(self) -> float:
        """Return the slope of the power law at the present clock, W per MHz."""
        width = self._ladder[-1] - self._ladder[0]
        x = max((self._clock_mhz - self._ladder[0]) / width, _LEAST_X)
        return float(self._work_w * _EXPONENT * x ** (_EXPONENT - 1.0) / width)

    def _within(self, clock_mhz: float) -> float:
        """Return the highest clock of the ladder that is not above a clock."""
        if self._faithful:
            return self._ladder[reference.nearest(self._ladder, clock_mhz)]
        below = [one for one in self._ladder if one <= clock_mhz + 1e-6]
        return below[-1] if below else self._ladder[0]

    @property
    def _point(self) -> OperatingPoint:
        return reference.point(self._tenants, self._clock_mhz if self._ladder else None)
