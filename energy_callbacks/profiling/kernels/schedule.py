"""Schedules windows by the number of steps and by the cost of earlier windows.

::

    step 10 ──▶ open ─ warm-up ─ recorded ─▶ close ──▶ step 50, if the cost allows it ──▶ ...

The cost of a window is its duration minus the usual duration of the same number of steps. The next
window is assumed to cost as much as the last one. The next window opens at its planned step or
later, once the cost of all windows, including the assumed cost, is at most a given share of the
time since the first step ended.
"""

import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

Action = Literal["none", "open", "step", "close"]
# The usual duration of a step is the median over this number of newest steps outside of windows.
_RECENT: Final = 101
# Maximum number of stretches that are kept. If there are more, the one with the fewest steps is
# discarded.
_STRETCHES: Final = 64


@dataclass(slots=True)
class Stretch:
    """Consecutive steps of training outside of windows, in one phase.

    Attributes:
        start_s: end of the step before the first one, by the meter's clock.
        end_s: end of the last step.
        steps: number of steps.
        after_windows: number of windows that ended before the stretch.
    """

    start_s: float
    end_s: float
    steps: int = 0
    after_windows: int = 0

    @property
    def duration_s(self) -> float:
        """Duration of all steps together, in seconds."""
        return self.end_s - self.start_s


class Schedule:
    """Decides at the end of each step whether a window opens or closes.

    Args:
        windows_after: numbers of steps after which windows may open, ascending.
        steps: number of steps of a window, including warm-up.
        max_overhead: time that windows may add to the training, as a share of the training's time.
            This limit does not apply to the first window.

    Attributes:
        steps: number of all steps so far, inside and outside of windows.
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
        """Cost of all windows so far, in seconds."""
        return sum(self._costs)

    @property
    def overhead(self) -> float | None:
        """Cost of windows as a share of the training's time without this cost.

        ``None`` if no time without this cost is known, for example before the end of the second
        step.
        """
        if self._first_s is None:
            return None
        usual_s = self._last_s - self._first_s - self.cost_s
        return self.cost_s / usual_s if usual_s > 0.0 else None

    @property
    def stretches(self) -> list[Stretch]:
        """Stretches after the first window; if they have fewer steps than a window, all stretches.

        Steps before the first window are less representative, because code is compiled and kernels
        are chosen during them.
        """
        known = [one for one in (*self._stretches, self._current) if one and one.steps]
        later = [one for one in known if one.after_windows]
        return later if sum(one.steps for one in later) >= self._length else known

    @property
    def step_s(self) -> float | None:
        """Mean duration of a step in ``stretches``, in seconds; ``None`` without stretches."""
        stretches = self.stretches
        if not stretches:
            return None
        return sum(one.duration_s for one in stretches) / sum(one.steps for one in stretches)

    def step(self, t_s: float) -> Action:
        """Count a step and return what to do at its end.

        Returns:
            ``open`` to open a window, ``step`` to report this step to the open window, ``close`` to
            close the open window, or ``none``.
        """
        self.steps += 1
        if self._first_s is None:
            self._first_s = t_s
        if self._opened_s is not None and self._in_window == self._length:
            # The window was closed after the end of the previous step. Closing it took a part of
            # this step, so this step is included in the cost.
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
        """End the open window, and add its cost, which is at least 0.

        Args:
            duration_s: seconds since the window opened.
            steps: number of steps in this time; their usual duration is subtracted.
        """
        usual_s = statistics.median(self._recent) if self._recent else 0.0
        self._costs.append(max(duration_s - steps * usual_s, 0.0))
        self._opened_s = None

    def interrupt(self) -> None:
        """End the current stretch, because a window or another phase begins."""
        ended, self._current = self._current, None
        if ended is None or not ended.steps:
            return
        self._stretches.append(ended)
        if len(self._stretches) > _STRETCHES:
            self._stretches.remove(min(self._stretches, key=lambda one: one.steps))

    def put_off(self, *, soon: bool = False) -> None:
        """Discard the open window and plan another one.

        Args:
            soon: whether the next window is due soon, after twice the number of steps of a window.
                Otherwise, it is due when the number of steps so far has doubled, or later.
        """
        later = self.steps + 2 * self._length if soon else max(10 * self._length, 2 * self.steps)
        self._due.appendleft(later)
        self._opened_s = None

    def abort(self, t_s: float | None = None) -> None:
        """End the current stretch; end the open window, if any, and add its cost.

        If the open window has not reached its last step, another window is planned.

        Args:
            t_s: end of the window, by the meter's clock; ``None`` for the end of the last step.
        """
        if self._opened_s is not None:
            if self._in_window < self._length:
                self._due.appendleft(self.steps + self._length)
            if t_s is not None:
                self._last_s = t_s
            self._add_cost(self._last_s - self._opened_s, self._in_window)
        self.interrupt()

    def close_for_good(self) -> None:
        """Cancel all planned windows."""
        self._due.clear()
