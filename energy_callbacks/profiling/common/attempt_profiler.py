"""Defines ``AttemptProfiler``, the base class of profilers that create an object per attempt.

This object, called the profiler run, holds the state of the profiler during the attempt.
"""

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

from energy_callbacks.accounting.attempt import ActiveAttempt
from energy_callbacks.accounting.profilers import ProfilerRun

RunT = TypeVar("RunT", bound=ProfilerRun)


class AttemptProfiler(ABC, Generic[RunT]):
    """A ``Profiler`` that passes its events to a new ``ProfilerRun`` in each attempt.

    Subclasses add only settings. Copies and pickles contain the settings, but no profiler run.
    """

    _run: RunT | None = None

    @abstractmethod
    def _begin(self, meter: ActiveAttempt) -> RunT | None:
        """Return a new profiler run for an attempt; ``None`` if the attempt is not profiled."""

    def start(self, meter: ActiveAttempt) -> None:
        """Begin to profile an attempt."""
        self._run = None
        self._run = self._begin(meter)

    def mark(self, name: str, t_s: float) -> None:
        """Pass an event to the profiler run."""
        if self._run is not None:
            self._run.mark(name, t_s)

    def step(self, t_s: float) -> None:
        """Pass the end of an optimizer step to the profiler run."""
        if self._run is not None:
            self._run.step(t_s)

    def stop(self) -> None:
        """Stop the profiler run."""
        run, self._run = self._run, None
        if run is not None:
            run.stop()

    def __getstate__(self) -> dict[str, Any]:
        """Return the settings, without the profiler run."""
        return self.__dict__ | {"_run": None}
