"""Measures the time that our hooks take in each step of a real training.

A timed call is either ours, such as a hook of the callback, or somebody else's, such as the
framework's method inside a method that we have replaced.
"""

import functools
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

import numpy as np

OWNERS: Final = ("ours", "logger")
_FIRST_STEPS: Final = 20  # the loop and its caches warm up
_EMPTY: Final = "empty function"

Owner = Literal["ours", "logger", "framework", "nobody"]


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


class TimedCall(NamedTuple):
    """What is timed; see ``HookTimer.timed``."""

    name: str
    owner: Owner
    begins_step: bool
    is_row: bool


class HookTimer(ABC):
    """Times calls of hooks; the trainings in ``hook_trainings`` say which calls."""

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
        return self._timed(call, TimedCall(name, owner, begins_step, is_row))

    @abstractmethod
    def _timed(self, call: Callable[..., Any], kind: TimedCall) -> Callable[..., Any]: ...


class HookTimes(HookTimer):
    """Times calls of one training, and adds them up for each step.

    ::

        times.wrap(callback, "on_step_begin", begins_step=True)
        times.wrap(callback, "on_step_end")
        times.wrap(logger, "log_metrics", owner="logger")
        times.wrap(meter, "log", is_row=True)

    The time of a call contains neither that of timed calls inside it, nor what reading the clock
    takes. An empty function, called once per step, shows the latter.

    Args:
        clock_ns: reads the time in ns: ``time.perf_counter_ns``, or ``time.thread_time_ns`` for the
            processor time of the training thread, which other programs do not lengthen.
    """

    def __init__(self, clock_ns: Callable[[], int]) -> None:
        self._clock_ns = clock_ns
        self._inside_ns: list[int] = []
        self._now: dict[str, tuple[int, int]] = {}
        self._has_row = False
        self._steps: list[dict[str, tuple[int, int]]] = []
        self._is_row: list[bool] = []
        self._names: dict[str, Owner] = {}
        self._began_s: list[float] = []
        self._empty = self.timed(lambda: None, _EMPTY, owner="nobody")

    def _timed(self, call: Callable[..., Any], kind: TimedCall) -> Callable[..., Any]:
        name, owner, begins_step, is_row = kind
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
                calls, own_ns = self._now.get(name, (0, 0))
                self._now[name] = calls + 1, own_ns + end_ns - start_ns - inside.pop()
                if inside:
                    inside[-1] += clock_ns() - entered_ns

        return timed

    def _begin_step(self) -> None:
        if self._began_s:
            self._steps.append(self._now)
            self._is_row.append(self._has_row)
        self._began_s.append(time.perf_counter())
        self._now, self._has_row = {}, False
        self._empty()

    def costs(self) -> Costs:
        """Return the costs of all steps that have ended."""
        names = {owner: [n for n, o in self._names.items() if o == owner] for owner in OWNERS}
        us = {name: self._us(name) for name in self._names}
        ours, loggers = (sum(us[name] for name in names[owner]) for owner in ("ours", "logger"))
        rows = np.array(self._is_row, dtype=bool)
        is_warm = np.arange(len(rows)) >= _FIRST_STEPS
        plain, rows = ~rows & is_warm, rows & is_warm
        return Costs(
            steps=int(plain.sum()),
            step_ms=1e3 * _median(np.diff(self._began_s)),
            median_us=_median(ours[plain]),
            p99_us=float(np.quantile(ours[plain], 0.99)),
            rows=int(rows.sum()),
            row_us=_median(ours[rows]),
            logger_us=_median(loggers[rows]),
            rows_per_s=sum(self._is_row) / (self._began_s[-1] - self._began_s[0]),
            hooks_us={name: _median(us[name][plain]) for name in names["ours"]},
            row_hooks_us={name: _median(us[name][rows]) for name in names["ours"]},
        )

    def _us(self, name: str) -> Any:
        """Return the time of calls with a name in each step, without reading the clock, us."""
        floor_ns = np.median([step[_EMPTY][1] for step in self._steps])
        both = np.array([step.get(name, (0, 0)) for step in self._steps])
        return (both[:, 1] - both[:, 0] * floor_ns) / 1e3


def _median(values: Any) -> float:
    return float(np.median(values)) if len(values) else float("nan")
