"""The protocol of trace recorders: each records one window with the profiler of a framework.

In profilers, a window consists of a few consecutive training steps. The first of these steps are
for warm-up and are not recorded.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from energy_callbacks.core.errors import EnergyCallbacksError


class TooLargeError(EnergyCallbacksError):
    """The trace of a window exceeds the maximum size, or the maximum number of events."""


class OccupiedError(EnergyCallbacksError):
    """The framework's profiler is already in use, and only one can run at a time."""


class NotNowError(OccupiedError):
    """Another profiler of this package is recording a window, which ends soon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowLimits:
    """The length of a window, and the maximum size of its trace.

    Attributes:
        warm_up_steps: number of steps before the recorded ones.
        active_steps: number of recorded steps; used for PyTorch only.
        max_events: maximum number of events in the trace; used for PyTorch only.
        max_bytes: maximum size of the trace in bytes.
    """

    warm_up_steps: int
    active_steps: int
    max_events: int
    max_bytes: int

    def too_large(self, size_bytes: int) -> TooLargeError | None:
        """Return the error for a trace of this size; ``None`` if the size is allowed."""
        if size_bytes <= self.max_bytes:
            return None
        return TooLargeError(
            f"the trace of a window has {size_bytes:,} bytes, more than max_trace_bytes="
            f"{self.max_bytes:,}; give KernelProfiler fewer active_steps, or allow more"
        )


class TraceRecorder(Protocol):
    """Records one window, which lasts from ``open`` until ``close`` or ``abort``.

    Attributes:
        framework: name of the framework, such as ``torch``.
    """

    framework: str

    def open(self) -> None:
        """Open the window, which begins with the warm-up steps.

        Raises:
            OccupiedError: if the framework's profiler is already in use.
        """
        ...

    def step(self) -> None:
        """Handle the end of a step; for the last step of the window, call ``close`` instead.

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
            TooLargeError: if the trace is too large; in this case, no file remains.
        """
        ...

    def abort(self) -> None:
        """Discard the open window; does nothing if no window is open."""
        ...
