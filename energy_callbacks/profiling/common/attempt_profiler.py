"""The base class of profilers that create one object per attempt."""

from abc import ABC, abstractmethod
from typing import Any, Generic, Protocol, TypeVar

from energy_callbacks.accounting.attempt import ActiveAttempt


class ProfilerRun(Protocol):
    """Profiles one attempt, from its creation until ``stop``; see ``Profiler``."""

    def mark(self, name: str, t_s: float) -> None:
        """Receive a mark."""
        ...

    def step(self, t_s: float) -> None:
        """Receive an optimizer step."""
        ...

    def stop(self) -> None:
        """Stop, and record the results."""
        ...


RunT = TypeVar("RunT", bound=ProfilerRun)


class AttemptProfiler(ABC, Generic[RunT]):
    """A ``Profiler`` that holds settings; the state of an attempt is in its run.

    Copies have the settings and do not run.
    """

    _run: RunT | None = None

    @abstractmethod
    def _begin(self, meter: ActiveAttempt) -> RunT | None:
        """Return the run of an attempt; ``None`` to leave the attempt out."""

    def start(self, meter: ActiveAttempt) -> None:
        """See ``Profiler``."""
        self._run = None
        self._run = self._begin(meter)

    def mark(self, name: str, t_s: float) -> None:
        """See ``Profiler``."""
        if self._run is not None:
            self._run.mark(name, t_s)

    def step(self, t_s: float) -> None:
        """See ``Profiler``."""
        if self._run is not None:
            self._run.step(t_s)

    def stop(self) -> None:
        """See ``Profiler``."""
        run, self._run = self._run, None
        if run is not None:
            run.stop()

    def __getstate__(self) -> dict[str, Any]:
        """Return the settings."""
        return self.__dict__ | {"_run": None}
