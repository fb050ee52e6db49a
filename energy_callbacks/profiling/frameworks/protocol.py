"""The protocol of framework profilers, which record one window."""

from pathlib import Path
from typing import Protocol

from energy_callbacks.core.errors import EnergyCallbacksError


class TooLargeError(EnergyCallbacksError):
    """The trace of a window is larger than allowed; no more windows are recorded."""


class OccupiedError(EnergyCallbacksError):
    """The profiler of the framework is in use; only one can run at a time."""


class NotNowError(OccupiedError):
    """A window of another profiler of this package is open; it ends soon."""


class TraceRecorder(Protocol):
    """Records one window; the framework's profiler runs from ``open`` to ``close`` or ``abort``."""

    framework: str

    def open(self) -> None:
        """Starts the steps in which the profiler warms up.

        Raises:
            OccupiedError: if another profiler of the framework is in use.
        """
        ...

    def step(self) -> None:
        """Marks the end of a step within the window."""
        ...

    def close(self) -> Path:
        """Ends the window after its last step and writes the trace.

        Returns:
            Path of the trace.

        Raises:
            TooLargeError: if the trace is too large; it is removed.
        """
        ...

    def abort(self) -> None:
        """Stops without keeping anything; does nothing if no window is open."""
        ...
