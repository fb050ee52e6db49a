"""Schedules windows by steps, and by the cost of earlier windows.

::

    step 10 ──▶ open ─ warm-up ─ active ─▶ close ──▶ step 50, once it is affordable ──▶ ...

The cost of a window is its time beyond that of as many steps outside of windows. The next window
waits until the cost of all, plus that of one more like the last, is below a share of the time since
training began.
"""

import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

Action = Literal["none", "open", "step", "close"]
# The usual duration of a step is the median of the newest steps.
_RECENT: Final = 101
# Number of stretches that are kept, the longest ones.
_STRETCHES: Final = 64


@dataclass(slots=True)
class Stretch:
    """Consecutive steps of training outside of windows, in one phase."""

    start_s: float
    end_s: float
    steps: int = 0
    after_windows: int = 0

    @property
    def duration_s(self) -> float:
        """Duration of the steps."""
        return self.end_s - self.start_s


class Schedule:
    """Decides at each step what to do; its memory does not grow with the length of the training.

    Args:
        windows_after: steps after which windows may open.
        steps: number of steps of a window.
        max_overhead: share of the time that windows may cost on average.
    """

    def __init__(self, windows_after: Sequence[int], steps: int, max_overhead: float) -> None:
        self._due = deque(windows_after)
        self._length = steps
        self._max_overhead = max_overhead
        self._recent: deque[float] = deque(maxlen=_RECENT)
        self._first_s: float | None = None
        self._last_s = 0.0
        self._opened_s: float | None = None
        self._in_window = 0
        self._costs: list[float] = []
        self._stretches: list[Stretch] = []
        self._current: Stretch | None = None
        self.steps = 0

    @property
    def cost_s(self) -> float:
        """Cost of all windows."""
        return sum(self._costs)

    @property
    def overhead(self) -> float | None:
        """Cost as a share of the time of training; ``None`` before the second step."""
        if self._first_s is None or self._last_s <= self._first_s:
            return None
        return self.cost_s / (self._last_s - self._first_s - self.cost_s)

    @property
    def stretches(self) -> list[Stretch]:
        """Steps outside of windows, only those after the first window if there are enough.

        The first steps of a training tune and compile, and are unlike the others.
        """
        known = [one for one in (*self._stretches, self._current) if one and one.steps]
        later = [one for one in known if one.after_windows]
        return later if sum(one.steps for one in later) >= self._length else known

    @property
    def step_s(self) -> float | None:
        """Mean duration of a step in ``stretches``; ``None`` without any."""
        stretches = self.stretches
        if not stretches:
            return None
        return sum(one.duration_s for one in stretches) / sum(one.steps for one in stretches)

    def step(self, t_s: float) -> Action:
        """Return what to do at the end of a step."""
        self.steps += 1
        if self._first_s is None:
            self._first_s = t_s
        if self._opened_s is not None and self._in_window == self._length:
            # The window was closed at the end of the last step; the step since then shows the cost.
            self._add_cost(t_s - self._opened_s, self._length + 1)
        if self._opened_s is not None:
            self._in_window += 1
            self._last_s = t_s
            return "step" if self._in_window < self._length else "close"
        self._step_outside(t_s)
        if not self._due or self.steps < self._due[0] or not self._is_affordable(t_s):
            return "none"
        self._due.popleft()
        self._opened_s, self._in_window = t_s, 0
        self.interrupt()
        return "open"

    def _step_outside(self, t_s: float) -> None:
        if self._current is None:
            self._current = Stretch(t_s, t_s, after_windows=len(self._costs))
        else:
            self._recent.append(t_s - self._current.end_s)
            self._current.end_s = t_s
            self._current.steps += 1
        self._last_s = t_s

    def _is_affordable(self, t_s: float) -> bool:
        if not self._costs or self._first_s is None:
            return True
        return self.cost_s + self._costs[-1] <= self._max_overhead * (t_s - self._first_s)

    def _add_cost(self, duration_s: float, steps: int) -> None:
        """End the window, whose cost is its duration beyond that of ``steps`` usual steps."""
        usual_s = statistics.median(self._recent) if self._recent else 0.0
        self._costs.append(max(duration_s - steps * usual_s, 0.0))
        self._opened_s = None

    def interrupt(self) -> None:
        """End the stretch: a window or another phase begins."""
        ended, self._current = self._current, None
        if ended is None or not ended.steps:
            return
        self._stretches.append(ended)
        if len(self._stretches) > _STRETCHES:
            self._stretches.remove(min(self._stretches, key=lambda one: one.steps))

    def put_off(self, *, soon: bool = False) -> None:
        """Drop the open window and plans another: much later, or soon."""
        later = self.steps + 2 * self._length if soon else max(10 * self._length, 2 * self.steps)
        self._due.appendleft(later)
        self._opened_s = None

    def abort(self, t_s: float | None = None) -> None:
        """Drop the open window, but not its cost, and plans another.

        Args:
            t_s: time of the end; ``None`` is that of the last step.
        """
        if self._opened_s is not None:
            if self._in_window < self._length:
                self._due.appendleft(self.steps + self._length)
            end_s = self._last_s if t_s is None else t_s
            self._add_cost(end_s - self._opened_s, self._in_window)
        self.interrupt()

    def close_for_good(self) -> None:
        """Plan no more windows."""
        self._due.clear()
