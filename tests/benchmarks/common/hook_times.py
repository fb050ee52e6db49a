"""Measures the time that our hooks take in each step of a real training.

A timed call is either ours, such as a hook of the callback, or somebody else's, such as the
framework's method inside a method that we have replaced.
"""

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

_FIRST_STEPS: Final = 20  # the loop and its caches warm up
_TRIES: Final = 1000

Owner = Literal["ours", "logger", "framework"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What our hooks cost in one training, in microseconds on the training thread.

    Attributes:
        steps: number of steps without a row.
        step_ms: median time from one step to the next, ms.
        median_us: median of the sum of all our hooks in a step without a row.
        p99_us: 99th percentile of the same sum.
        rows: number of steps with a row.
        row_us: median of our own part of a step with a row; NaN without one.
        logger_us: median of the loggers' part of a step with a row.
        rows_per_s: rows per second of the training.
        hooks_us: median of each hook in steps without a row, by its name.
        row_hooks_us: median of each hook in steps with a row, by its name.
    """

    steps: int
    step_ms: float
    median_us: float
    p99_us: float
    rows: int
    row_us: float
    logger_us: float
    rows_per_s: float
    hooks_us: dict[str, float]
    row_hooks_us: dict[str, float]


class HookTimes:
    """Times calls of one training, and adds them up for each step.

    ::

        times.wrap(callback, "on_step_begin", begins_step=True)
        times.wrap(callback, "on_step_end")
        times.wrap(logger, "log_metrics", owner="logger")
        times.wrap(meter, "log", is_row=True)

    The time of a call contains neither that of timed calls inside it, nor what reading the clock
    takes: that is measured first, with an empty function.

    Args:
        clock_ns: reads the time in ns: ``time.perf_counter_ns``, or ``time.thread_time_ns`` for the
            processor time of the training thread, which other programs do not lengthen.
    """

    def __init__(self, clock_ns: Callable[[], int]) -> None:
        self._clock_ns = clock_ns
        self._inside_ns: list[int] = []
        self._now: dict[str, int] = {}
        self._has_row = False
        self._steps: list[dict[str, int]] = []
        self._is_row: list[bool] = []
        self._names: dict[str, Owner] = {}
        self._began_s: list[float] = []
        self._floor_ns = 0
        self._floor_ns = self._calibrated_ns()

    def _calibrated_ns(self) -> int:
        """Return the time that an empty function seems to take."""
        empty = self.timed(lambda: None, "empty")
        found = []
        for _ in range(_TRIES):
            empty()
            found.append(self._now.pop("empty"))
        del self._names["empty"]
        return int(np.median(found))

    def wrap(self, holder: Any, name: str, **options: Any) -> None:
        """Replace a method of an object or class with one that is timed; see ``timed``."""
        setattr(holder, name, self.timed(getattr(holder, name), name, **options))

    def timed(
        self,
        call: Callable[..., Any],
        name: str,
        *,
        owner: Owner = "ours",
        begins_step: bool = False,
        is_row: bool = False,
    ) -> Callable[..., Any]:
        """Return a function that times another one.

        Args:
            call: the other function.
            name: its name in the table.
            owner: whose time it is.
            begins_step: whether a call begins a new step.
            is_row: whether a call makes the step one with a row.
        """
        self._names[name] = owner
        inside, clock_ns = self._inside_ns, self._clock_ns

        @functools.wraps(call)
        def timed(*args: Any, **kwargs: Any) -> Any:
            entered_ns = clock_ns()
            if begins_step:
                self._begin_step()
            self._has_row |= is_row
            inside.append(0)
            start_ns = clock_ns()
            try:
                return call(*args, **kwargs)
            finally:
                end_ns = clock_ns()
                own_ns = end_ns - start_ns - inside.pop() - self._floor_ns
                self._now[name] = self._now.get(name, 0) + own_ns
                if inside:
                    inside[-1] += clock_ns() - entered_ns + self._floor_ns

        return timed

    def _begin_step(self) -> None:
        if self._began_s:
            self._steps.append(self._now)
            self._is_row.append(self._has_row)
        self._began_s.append(time.perf_counter())
        self._now, self._has_row = {}, False

    def costs(self) -> Costs:
        """Return the costs of all steps that have ended."""
        ours, loggers = self._us("ours"), self._us("logger")
        rows = np.array(self._is_row, dtype=bool)
        is_warm = np.arange(len(rows)) >= _FIRST_STEPS
        plain, rows = ~rows & is_warm, rows & is_warm
        kept = [step for step, is_kept in zip(self._steps, plain, strict=True) if is_kept]
        return Costs(
            steps=len(kept),
            step_ms=1e3 * float(np.median(np.diff(self._began_s))),
            median_us=float(np.median(ours[plain])),
            p99_us=float(np.quantile(ours[plain], 0.99)),
            rows=int(rows.sum()),
            row_us=_median(ours[rows]),
            logger_us=_median(loggers[rows]),
            rows_per_s=sum(self._is_row) / (self._began_s[-1] - self._began_s[0]),
            hooks_us={
                name: float(np.median([step.get(name, 0) for step in kept])) / 1e3
                for name, owner in self._names.items()
                if owner == "ours"
            },
            row_hooks_us={
                name: _median(
                    [
                        step.get(name, 0) / 1e3
                        for step, is_row in zip(self._steps, rows, strict=True)
                        if is_row
                    ]
                )
                for name, owner in self._names.items()
                if owner == "ours"
            },
        )

    def _us(self, owner: Owner) -> Any:
        """Return the time of one owner's calls in each step, us."""
        names = [name for name, its in self._names.items() if its == owner]
        return np.array([sum(step.get(name, 0) for name in names) for step in self._steps]) / 1e3


def _median(values: Any) -> float:
    return float(np.median(values)) if len(values) else float("nan")
