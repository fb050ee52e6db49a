"""Schedules windows by steps, and by the cost of earlier windows.

::

    step 10 ──▶ open ─ warm-up ─ active ─▶ close ──▶ step 50, once it is affordable ──▶ ...

What a window cost is its time beyond that of as many steps outside; the next one waits until the
cost of all, and one more like the last, is below a share of the time since training began.
"""

import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

Action = Literal["none", "open", "step", "close"]
# Of the newest steps the median is what a step takes.
_RECENT: Final = 101
# Parts of the training between windows, phases and epochs that are kept: the longest.
_STRETCHES: Final = 64


@dataclass(slots=True)
class Stretch:
    """Steps of training one after the other, outside of windows."""

    start_s: float
    end_s: float
    steps: int = 0
    after_windows: int = 0

    @property
    def duration_s(self) -> float:
        """How long they took."""
        return self.end_s - self.start_s


class Schedule:
    """Told each step; says what is to be done. Takes the same memory at any length of a training.

    Args:
        windows_after: steps after which windows may open.
        steps: of a window.
        max_overhead: share of the time that windows may cost on average.
    """

    def __init__(self, windows_after: Sequence[int], steps: int, max_overhead: float) -> None:
        self._due = deque(windows_after)
        self._length = steps
        self._max_overhead = max_overhead
        self._recent: deque[float] = deque(maxlen=_RECENT)
        self._last_s: float | None = None
        self._first_s: float | None = None
        self._opened_s: float | None = None
        self._in_window = 0
        self._is_settling = False
        self._costs: list[float] = []
        self._stretches: list[Stretch] = []
        self._current: Stretch | None = None
        self.steps = 0

    @property
    def is_open(self) -> bool:
        """Whether a window is."""
        return self._opened_s is not None and not self._is_settling

    @property
    def cost_s(self) -> float:
        """The time of all windows beyond their steps."""
        return sum(self._costs)

    @property
    def overhead(self) -> float | None:
        """The same as a share of the time of training; ``None`` before the second step."""
        if self._first_s is None or self._last_s is None or self._last_s <= self._first_s:
            return None
        return self.cost_s / (self._last_s - self._first_s - self.cost_s)

    @property
    def stretches(self) -> list[Stretch]:
        """Steps outside windows, after the first window if there are enough.

        The first steps of a training tune and compile, and are unlike the others.
        """
        known = [one for one in (*self._stretches, self._current) if one and one.steps]
        later = [one for one in known if one.after_windows]
        return later if sum(one.steps for one in later) >= self._length else known

    def step(self, t_s: float) -> Action:
        """A step has ended."""
        self.steps += 1
        if self._first_s is None:
            self._first_s = t_s
        if self._is_settling:
            self._settle(t_s)
        if self._opened_s is not None:
            return self._step_in_window(t_s)
        self._step_outside(t_s)
        if self._may_open(t_s):
            self._due.popleft()
            self._opened_s, self._in_window = t_s, 0
            self.interrupt()
            return "open"
        return "none"

    def _step_in_window(self, t_s: float) -> Action:
        self._in_window += 1
        self._last_s = t_s
        if self._in_window < self._length:
            return "step"
        self._is_settling = True  # what closing takes is seen in the next step
        return "close"

    def _step_outside(self, t_s: float) -> None:
        if self._current is None:
            self._current = Stretch(t_s, t_s, after_windows=len(self._costs))
        else:
            self._recent.append(t_s - self._current.end_s)
            self._current.end_s = t_s
            self._current.steps += 1
        self._last_s = t_s

    def _settle(self, t_s: float) -> None:
        assert self._opened_s is not None
        usual_s = statistics.median(self._recent) if self._recent else 0.0
        self._costs.append(max(t_s - self._opened_s - (self._length + 1) * usual_s, 0.0))
        self._opened_s, self._is_settling = None, False

    def _may_open(self, t_s: float) -> bool:
        if not self._due or self.steps < self._due[0]:
            return False
        if not self._costs or self._first_s is None:
            return True
        return self.cost_s + self._costs[-1] <= self._max_overhead * (t_s - self._first_s)

    def interrupt(self) -> None:
        """The next span is not a step of this training: a window or a validation."""
        ended, self._current = self._current, None
        if ended is None or not ended.steps:
            return
        self._stretches.append(ended)
        if len(self._stretches) > _STRETCHES:
            self._stretches.remove(min(self._stretches, key=lambda one: one.steps))

    def put_off(self, *, soon: bool = False) -> None:
        """The window that is open, or was to be, cannot be: try again much later, or soon."""
        later = self.steps + 2 * self._length if soon else max(10 * self._length, 2 * self.steps)
        self._due.appendleft(later)
        self._opened_s, self._is_settling = None, False

    def abort(self, t_s: float | None = None) -> None:
        """The window that is open is lost, not what it cost; a later one takes its place.

        Args:
            t_s: when; ``None`` is with the last step.
        """
        if self._opened_s is not None and self._last_s is not None:
            usual_s = statistics.median(self._recent) if self._recent else 0.0
            ended_s = self._last_s if t_s is None else t_s
            self._costs.append(max(ended_s - self._opened_s - self._in_window * usual_s, 0.0))
            if not self._is_settling:
                self._due.appendleft(self.steps + self._length)
        self._opened_s, self._is_settling = None, False
        self.interrupt()

    def close_for_good(self) -> None:
        """No more windows."""
        self._due.clear()
