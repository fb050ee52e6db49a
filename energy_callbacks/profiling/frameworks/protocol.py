"""The protocol of trace recorders, which record one window with the profiler of a framework.

In profilers, a window consists of a few consecutive training steps, of which the first ones
(warm-up) are not recorded.
"""

from pathlib import Path
from typing import Protocol

from energy_callbacks.core.errors import EnergyCallbacksError


class TooLargeError(EnergyCallbacksError):
    """The trace of a window is larger than the limit, so no more windows are recorded."""


class OccupiedError(EnergyCallbacksError):
    """The profiler of the framework is in use; only one can run at a time."""


class NotNowError(OccupiedError):
    """Another profiler of this package is recording a window, which ends soon."""


class TraceRecorder(Protocol):
    """Records one window; the framework's profiler runs from ``open`` to ``close`` or ``abort``.

    Attributes:
        framework: name of the framework, such as ``torch``.
    """

    framework: str

    def open(self) -> None:
        """Open the window, which begins with the warm-up steps.

        Raises:
            OccupiedError: if another profiler of the framework is in use.
        """
        ...

    def step(self) -> None:
        """Receive the end of a step, except the last one, for which ``close`` is called.

        Raises:
            OccupiedError: if the training has started a profiler of its own.
        """
        ...

    def close(self) -> Path:
        """End the window at the end of its last step, and write the trace.

        Returns:
            Path of the trace file.

        Raises:
            OccupiedError: if the training has started a profiler of its own.
            TooLargeError: if the trace is too large; no file remains.
        """
        ...

    def abort(self) -> None:
        """Discard the open window; does nothing if no window is open."""
        ...
