"""The protocol of framework profilers, which record one window."""

from pathlib import Path
from typing import Protocol

from energy_callbacks.core.errors import EnergyCallbacksError


class TooLargeError(EnergyCallbacksError):
    """A window's trace is larger than allowed; no other will be taken."""


class OccupiedError(EnergyCallbacksError):
    """The framework's profiler is in use; there can be only one."""


class NotNowError(OccupiedError):
    """A window of another profiler of ours is open; soon it will not be."""


class TraceRecorder(Protocol):
    """Records one window; the framework's profiler runs from ``open`` to ``close`` or ``abort``."""

    framework: str

    def open(self) -> None:
        """The steps that warm the profiler up begin.

        Raises:
            OccupiedError: if another profiler of the framework is there.
        """
        ...

    def step(self) -> None:
        """A step of the window has ended."""
        ...

    def close(self) -> Path:
        """The last step of the window has ended: write what was recorded.

        Returns:
            What was written.

        Raises:
            TooLargeError: if it is too large; nothing is left on the disk.
        """
        ...

    def abort(self) -> None:
        """Stop, and keep nothing; harmless where nothing runs."""
        ...
