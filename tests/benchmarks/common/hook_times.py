"""Measures the time that our hooks take in each step of a real training.

A timed call is either ours, such as a hook of the callback, or somebody else's, such as the
framework's method inside a method that we have replaced. Calls may be nested: the time of a call is
counted without that of timed calls inside it.
"""

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

_FIRST_STEPS: Final = 20  # the loop and its caches warm up

Owner = Literal["ours", "logger", "framework"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What the steps of one training cost, in microseconds on the training thread.

    Attributes:
        steps: number of steps without a row.
        median_us: median of the sum of all our hooks in a step without a row.
        p99_us: 99th percentile of the same sum.
        rows: number of steps with a row.
        row_us: median of our own part of a step with a row; NaN without one.
        logger_us: median of the loggers' part of a step with a row.
        rows_per_s: rows per second of the training.
        hooks_us: median of each hook in steps without a row, by its name.
    """

    steps: int
    median_us: float
    p99_us: float
    rows: int
    row_us: float
    logger_us: float
    rows_per_s: float
    hooks_us: dict[str, float]


class HookTimes:
    """Times calls of one training, and adds them up for each step.

    ::

        times.wrap(callback, "on_step_begin", begins_step=True)
        times.wrap(callback, "on_step_end")
        times.wrap(logger, "log_metrics", owner="logger")
        times.wrap(meter, "log", is_row=True)
    """

    def __init__(self) -> None:
        self._now = self._zero()
        self._inside_ns: list[int] = []
        self._steps: list[dict[str, int]] = []
        self._is_row: list[bool] = []
        self._names: dict[str, Owner] = {}
        self._has_row = False
        self._start_ns: int | None = None
        self._end_ns = 0

    @staticmethod
    def _zero() -> dict[str, int]:
        return {}

    def wrap(
        self,
        holder: Any,
        name: str,
        *,
        owner: Owner = "ours",
        begins_step: bool = False,
        is_row: bool = False,
    ) -> None:
        """Replace an attribute of an object or class with one that is timed.

        Args:
            holder: object or class that has the method.
            name: name of the method.
            owner: whose time it is.
            begins_step: whether a call begins a new step.
            is_row: whether a call makes the step one with a row.
        """
        setattr(
            holder,
            name,
            self.timed(
                getattr(holder, name), name, owner=owner, begins_step=begins_step, is_row=is_row
            ),
        )

    def timed(
        self,
        call: Callable[..., Any],
        name: str,
        *,
        owner: Owner = "ours",
        begins_step: bool = False,
        is_row: bool = False,
    ) -> Callable[..., Any]:
        """Return a function that times ``call``; see ``wrap``."""
        self._names[name] = owner

        @functools.wraps(call)
        def timed(*args: Any, **kwargs: Any) -> Any:
            if begins_step:
                self._begin_step()
            self._has_row |= is_row
            self._inside_ns.append(0)
            start_ns = time.perf_counter_ns()
            try:
                return call(*args, **kwargs)
            finally:
                spent_ns = time.perf_counter_ns() - start_ns
                self._now[name] = self._now.get(name, 0) + spent_ns - self._inside_ns.pop()
                if self._inside_ns:
                    self._inside_ns[-1] += spent_ns

        return timed

    def _begin_step(self) -> None:
        self._end_ns = time.perf_counter_ns()
        if self._start_ns is None:
            self._start_ns = self._end_ns
        else:
            self._steps.append(self._now)
            self._is_row.append(self._has_row)
        self._now, self._has_row = self._zero(), False

    def costs(self) -> Costs:
        """Return the costs of all steps that have ended."""
        ours = self._us("ours")
        rows, loggers = np.array(self._is_row, dtype=bool), self._us("logger")
        rows[:_FIRST_STEPS] = False
        plain = ~np.array(self._is_row, dtype=bool)
        plain[:_FIRST_STEPS] = False
        seconds = (self._end_ns - (self._start_ns or 0)) / 1e9
        names = [name for name, owner in self._names.items() if owner == "ours"]
        kept = [step for step, is_kept in zip(self._steps, plain, strict=True) if is_kept]
        return Costs(
            steps=int(plain.sum()),
            median_us=float(np.median(ours[plain])),
            p99_us=float(np.quantile(ours[plain], 0.99)),
            rows=int(rows.sum()),
            row_us=_median(ours[rows]),
            logger_us=_median(loggers[rows]),
            rows_per_s=sum(self._is_row) / seconds,
            hooks_us={
                name: float(np.median([step.get(name, 0) for step in kept])) / 1e3 for name in names
            },
        )

    def _us(self, owner: Owner) -> Any:
        """Return the time of one owner's calls in each step, us."""
        names = [name for name, its in self._names.items() if its == owner]
        return np.array([sum(step.get(name, 0) for name in names) for step in self._steps]) / 1e3


def _median(values: Any) -> float:
    return float(np.median(values)) if len(values) else float("nan")
