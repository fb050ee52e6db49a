"""Sums the processor time that our code takes on the training thread, over a whole training.

It counts from the entry into a hook or replaced method of ours to its end, without the
framework's own methods inside. Loggers that write a row of ours count, because the row is ours.
"""

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from tests.benchmarks.common.hook_times import HookTimer, TimedCall
from tests.benchmarks.overhead_parts.fit_pairs import START_S

_EMPTY_CALLS: Final = 2000


@dataclass(slots=True)
class _Sum:
    """Processor time and calls since the beginning of the steady state."""

    ns: int = 0
    calls: int = 0
    steps: int = 0


class HookProcessorTime(HookTimer):
    """Processor time of our calls in steps that begin later than 3 s after the first step."""

    def __init__(self) -> None:
        self._is_ours = False
        self._since_ns = 0
        self._first_s: float | None = None
        self._sum = _Sum()
        self._ended = _Sum()

    def _timed(self, call: Callable[..., Any], kind: TimedCall) -> Callable[..., Any]:
        _, owner, begins_step, _ = kind
        if owner == "logger":
            return call

        @functools.wraps(call)
        def timed(*args: Any, **kwargs: Any) -> Any:
            if begins_step:
                self._note_step()
            if self._is_ours is (owner == "ours"):
                return call(*args, **kwargs)
            self._switch()
            try:
                return call(*args, **kwargs)
            finally:
                self._switch()

        return timed

    def _switch(self) -> None:
        """Enter our code, or leave it."""
        now_ns = time.thread_time_ns()
        if self._is_ours:
            self._sum.ns += now_ns - self._since_ns
            self._sum.calls += 1
        self._is_ours = not self._is_ours
        self._since_ns = now_ns

    def _note_step(self) -> None:
        # The end of the training, which writes a report, belongs to no step.
        self._ended = replace(self._sum)
        now_s = time.monotonic()
        if self._first_s is None:
            self._first_s = now_s
        if now_s - self._first_s < START_S:
            self._sum = _Sum()
        self._sum.steps += 1

    def us_per_step(self) -> float:
        """Return the mean processor time of a step, us, without that of the measurement itself."""
        done, self._sum = self._ended, _Sum()
        empty = self.timed(lambda: None, "empty")
        for _ in range(_EMPTY_CALLS):
            empty()
        own_ns = self._sum.ns / self._sum.calls
        return (done.ns - done.calls * own_ns) / done.steps / 1e3
