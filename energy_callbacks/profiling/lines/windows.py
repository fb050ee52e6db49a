"""Schedules the recording of kernels: a few steps at a time, for a bounded share of the time."""

import time
from typing import Final

from energy_callbacks.profiling.frameworks import torch_kernels
from energy_callbacks.profiling.lines.source_location import Line

_FIRST_STEP: Final = 10
_MOST_FAILURES: Final = 8


class Windows:
    """A few windows; the next only when those before cost no more than their share of the time.

    Args:
        most: how many.
        steps: recorded in each.
        max_overhead: share of the time since the start that all windows may have cost before the
            next one opens; the first, in step 10, opens in any case.
    """

    def __init__(self, most: int, steps: int, max_overhead: float) -> None:
        self._most = most
        self._steps = steps
        self._max_overhead = max_overhead
        self._start_s = time.monotonic()
        self._last_s: float | None = None
        self._quick_s: float | None = None
        self._window: torch_kernels.Window | None = None
        self._done: list[torch_kernels.Window] = []
        self._failures = 0
        self._due_step = _FIRST_STEP
        self.seen_steps = 0
        self.cost_s = 0.0

    def step(self, *, is_training: bool) -> None:
        """A step of training has been queued."""
        now_s = time.monotonic()
        self.seen_steps += is_training
        self._learn(now_s)
        if self._window is not None:
            is_over = self._window.step()
            if is_over:
                self._done.append(self._window)
                self._window = None
            self.cost_s += max(time.monotonic() - (self._last_s or now_s) - self._plain_s, 0.0)
        elif is_training and self._is_due(now_s):
            self._window, took_s = torch_kernels.opened(self._steps)
            if self._window is None:  # another profiler is running: again after as many steps
                self._failures += 1
                self._due_step = 2 * self.seen_steps
            self.cost_s += took_s
        self._last_s = time.monotonic()

    def close(self) -> None:
        """No more windows; one that is open is cut short."""
        window, self._window, self._most = self._window, None, 0
        if window is not None:
            window.close()

    def result(self) -> tuple[int, dict[Line | None, float], float]:
        """How many windows, seconds of kernels a step by line, busy seconds a step; their means."""
        found = [one for one in (window.result() for window in self._done) if one is not None]
        by_line: dict[Line | None, float] = {}
        for kernel_s, _ in found:
            for line, seconds in kernel_s.items():
                by_line[line] = by_line.get(line, 0.0) + seconds / len(found)
        return len(found), by_line, sum(busy_s for _, busy_s in found) / max(len(found), 1)

    @property
    def _plain_s(self) -> float:
        return self._quick_s or 0.0

    def _learn(self, now_s: float) -> None:
        """How long a step takes without a window: the shortest so far is no window's."""
        if self._last_s is not None and self._window is None:
            took_s = now_s - self._last_s
            self._quick_s = min(self._quick_s or took_s, took_s)

    def _is_due(self, now_s: float) -> bool:
        is_done = len(self._done) >= self._most or self._failures >= _MOST_FAILURES
        if is_done or self.seen_steps < self._due_step or not torch_kernels.is_used():
            return False
        return not self._done or self.cost_s <= self._max_overhead * (now_s - self._start_s)
