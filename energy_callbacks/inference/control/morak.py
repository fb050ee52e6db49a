"""Morak (IEEE MASS 2023), as PctoDL implements it: two tenants, batch and clock by feedback.

The text of that implementation has two tenants of 40 %, a start at batch 96 and the middle clock,
and larger steps the farther the power is from the cap. Written from the text.
"""

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

_SHARES_PCT: Final = (40.0, 40.0)
_FIRST_BATCH: Final = 96
_BATCHES: Final = range(1, 257)
_ALPHA: Final = 0.98  # holds from this part of the cap
_ABOVE: Final = 1.02  # up to this part
_BETA: Final = 0.9  # of the latency limit, up to which the batch grows
# Clocks of a step, by the distance from the cap in percent.
_STEPS: Final = ((20.0, 10), (10.0, 5), (5.0, 2), (0.0, 1))


class Morak:
    """Changes batch and clock by feedback, for a limit of the latency.

    Args:
        problem: models and limits; the latency limit is the smallest of ``max_latencies_ms``.
        model: not used.
        partition: tenants, which all have the searched batch; by default two of 40 %.
    """

    name = "morak"
    needs: frozenset[Need] = frozenset({"partition", "batch", "clock"})

    def __init__(
        self, problem: Problem, model: PredictionModel, *, partition: Tenants | None = None
    ) -> None:
        del model
        self.degraded = ""
        self._tenants = partition or reference.equal_tenants(problem, _SHARES_PCT, 1)
        self._most = max(reference.fitting(problem, self._tenants, _BATCHES))
        first = _FIRST_BATCH if partition is None else partition[0].batch
        self._batch = min(first, self._most)
        self._slo_ms = min(problem.max_latencies_ms.values(), default=float("inf"))

    def start(self, cap_w: float, abilities: Abilities) -> OperatingPoint:
        """See ``Controller``."""
        self.degraded = reference.degraded(
            abilities,
            {
                "clock": "only the batch follows the cap",
                "batch": "only the clock follows the cap",
                "partition": "the tenants stay as they are",
            },
        )
        self._can_batch = "batch" in abilities.can
        self._clocks = reference.clocks(abilities)
        self._clock = (len(self._clocks) - 1) // 2
        return self.cap_changed(cap_w)

    def cap_changed(self, cap_w: float) -> OperatingPoint:
        """See ``Controller``."""
        self._cap_w = cap_w
        return self._point

    def step(self, window: Window) -> OperatingPoint:
        """See ``Controller``."""
        if not window.is_steady:
            return self._point
        power_w = window.power_max_w
        gap_pct = 100.0 * abs(power_w / self._cap_w - 1.0)
        steps = next(count for least, count in _STEPS if gap_pct > least or least == 0.0)
        is_slow = (window.latency_p95_ms or 0.0) > _BETA * self._slo_ms
        if power_w <= _ALPHA * self._cap_w:
            self._more(steps, is_slow=is_slow)
        elif power_w > _ABOVE * self._cap_w:
            self._less(steps, is_slow=is_slow)
        return self._point

    def _more(self, steps: int, *, is_slow: bool) -> None:
        if not is_slow and self._can_batch and self._batch < self._most:
            self._batch += 1
        else:
            self._change_clock(steps)

    def _less(self, steps: int, *, is_slow: bool) -> None:
        if self._can_batch and (is_slow or not self._clocks):
            self._batch = max(self._batch - steps, 1)
        else:
            self._change_clock(-steps)

    def _change_clock(self, steps: int) -> None:
        self._clock = min(max(self._clock + steps, 0), len(self._clocks) - 1)

    @property
    def _point(self) -> OperatingPoint:
        tenants = reference.with_batch(self._tenants, self._batch)
        return reference.point(tenants, self._clocks[self._clock] if self._clocks else None)
