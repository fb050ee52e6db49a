"""What each framework's own profiler does for one window."""

from pathlib import Path
from typing import Protocol

from energy_callbacks.errors import EnergyCallbacksError


class TooLargeError(EnergyCallbacksError):
    """A window's trace is larger than allowed; no other will be taken."""


class Recorder(Protocol):
    """Records one window; the framework's profiler runs from ``open`` to ``close`` or ``abort``."""

    framework: str

    def open(self) -> None:
        """The steps that warm the profiler up begin."""
        ...

    def step(self) -> None:
        """A step of the window has ended."""
        ...

    def close(self, path: Path) -> Path:
        """The last step of the window has ended: write what was recorded.

        Args:
            path: where to, without an ending.

        Returns:
            What was written.

        Raises:
            TooLargeError: where it is too large; nothing is left on the disk.
        """
        ...

    def abort(self) -> None:
        """Stop, and keep nothing; harmless where nothing runs."""
        ...
