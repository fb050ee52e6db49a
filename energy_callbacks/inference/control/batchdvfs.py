"""BatchDVFS: searches the batch by bisection, and changes the clock only at the ends.

Two laws are written from their texts. That of the authors (IEEE TPDS 2022) acts every 3 s on the
highest power since then; it holds between 80 % of the cap and the cap. PctoDL's variant acts after
every window and holds above 98 %.
"""

import math
from typing import Final, Literal

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

Law = Literal["authors", "pctodl"]
# The authors' GPU had 10 clocks, of which the sixth was the first; batches were 1 to 255.
_CLOCKS: Final = 10
_FIRST_CLOCK: Final = 5
_MOST_BATCH: Final = 255
_PERIOD_S: Final = 3.0
_HOLD: Final[dict[Law, float]] = {"authors": 0.8, "pctodl": 0.98}
# PctoDL's variant: 32 batches, of which the last is the first; steps of 4 clocks, or of 1 if the
# power is close to the cap.
_BATCHES: Final = tuple(range(8, 257, 8))
_NEAR_W: Final = 15.0
_STEPS: Final = (1, 4)
_ROUNDING_S: Final = 1e-6


class BatchDvfs:
    """Searches batch and clock by feedback.

    Args:
        problem: models and limits.
        model: not used.
        partition: tenants, which all have the searched batch; by default one for each model, with
            equal shares of the whole GPU.
        law: ``"authors"`` or ``"pctodl"``.

    Raises:
        ValueError: if there is no such law.
    """

    name = "batchdvfs"
    needs: frozenset[Need] = frozenset({"batch", "clock"})

    def __init__(
        self,
        problem: Problem,
        model: PredictionModel,
        *,
        partition: Tenants | None = None,
        law: Law = "authors",
    ) -> None:
        del model
        if law not in _HOLD:
            raise ValueError(f"law must be one of {', '.join(_HOLD)}, got {law!r}")
        self.degraded = ""
        self._law: Law = law
        batches = range(1, _MOST_BATCH + 1) if law == "authors" else _BATCHES
        self._tenants = partition or reference.whole_gpu(problem, batches[0])
        self._batches = reference.fitting(problem, self._tenants, batches)
        first = 0 if partition is None and law == "authors" else len(self._batches) - 1
        if partition is not None:
            first = reference.nearest([float(one) for one in self._batches], partition[0].batch)
        self._batch = first

    def start(self, cap_w: float, abilities: Abilities) -> OperatingPoint:
        """See ``Controller``."""
        self.degraded = reference.degraded(
            abilities,
            {"clock": "only the batch follows the cap", "batch": "only the clock follows the cap"},
        )
        if "batch" not in abilities.can:
            self._batches = [self._batches[self._batch]]
            self._batch = 0
        self._clocks = reference.clocks(abilities)
        if self._law == "authors" and len(self._clocks) > _CLOCKS:
            last = len(self._clocks) - 1
            self._clocks = [self._clocks[at * last // (_CLOCKS - 1)] for at in range(_CLOCKS)]
        self._clock = min(_FIRST_CLOCK, len(self._clocks) - 1)
        if self._law == "pctodl":
            self._clock = (len(self._clocks) - 1) // 2
        return self.cap_changed(cap_w)

    def cap_changed(self, cap_w: float) -> OperatingPoint:
        """See ``Controller``; the bisection begins again with all batches."""
        self._cap_w = cap_w
        self._low, self._high = 0, len(self._batches) - 1
        self._highest_w = 0.0
        self._acted_s: float | None = None
        return self._point

    def step(self, window: Window) -> OperatingPoint:
        """See ``Controller``."""
        if not window.is_steady:
            return self._point
        self._highest_w = max(self._highest_w, window.power_max_w)
        self._acted_s = window.start_s if self._acted_s is None else self._acted_s
        if self._law == "pctodl" or window.end_s - self._acted_s >= _PERIOD_S - _ROUNDING_S:
            self._act(self._highest_w)
            self._highest_w, self._acted_s = 0.0, window.end_s
        return self._point

    def _act(self, power_w: float) -> None:
        is_above = power_w > self._cap_w
        if not is_above and power_w >= _HOLD[self._law] * self._cap_w:
            return
        if self._law == "authors":
            (self._less if is_above else self._more)()
        else:
            self._bisect(power_w, is_above=is_above)

    def _more(self) -> None:
        """Increase the batch, or the clock if the batch is the largest; the authors' law."""
        top = len(self._batches) - 1
        if self._batch == top:
            self._change_clock(1)
            return
        if self._batch == self._high:
            self._low, self._high = self._high, top
        else:
            self._low = self._batch
        self._batch = math.ceil((self._low + self._high) / 2)

    def _less(self) -> None:
        """Decrease the batch, or the clock if the batch is the smallest; the authors' law."""
        if self._batch == 0:
            self._change_clock(-1)
            return
        if self._batch == self._low:
            self._low, self._high = 0, self._low
        else:
            self._high = self._batch
        self._batch = (self._low + self._high) // 2

    def _bisect(self, power_w: float, *, is_above: bool) -> None:
        """Bisect the batch, then step the clock; PctoDL's law."""
        if is_above:
            self._high = self._batch
        else:
            self._low = self._batch
        if self._high - self._low > 1:
            self._batch = (self._low + self._high) // 2
            return
        steps = _STEPS[abs(power_w - self._cap_w) > _NEAR_W]
        self._change_clock(-steps if is_above else steps)

    def _change_clock(self, steps: int) -> None:
        self._clock = min(max(self._clock + steps, 0), len(self._clocks) - 1)

    @property
    def _point(self) -> OperatingPoint:
        tenants = reference.with_batch(self._tenants, self._batches[self._batch])
        return reference.point(tenants, self._clocks[self._clock] if self._clocks else None)
