"""Records one window of kernels and operators with PyTorch's profiler."""

from pathlib import Path
from typing import Any, Final

from energy_callbacks.profiling.frameworks.torch_window import TorchWindow, is_foreign
from energy_callbacks.profiling.kernels.protocol import NotNowError, OccupiedError, TooLargeError

# An event in Kineto's JSON has 200 to 500 bytes (torch 2.13: 300 on average).
_BYTES_OF_EVENT: Final = 300
_OCCUPIED: Final = (
    "the training has a torch.profiler.profile of its own, and PyTorch can run but one: "
    "KernelProfiler gives way; leave one of the two out"
)


class TorchRecorder:
    """A ``TraceRecorder`` for PyTorch.

    Args:
        path: of the file to write, without a suffix.
        warm_up_steps: steps in which CUPTI starts; they are discarded.
        active_steps: steps that are recorded.
        max_events: of a trace.
        max_bytes: of a trace.
    """

    framework = "torch"

    def __init__(
        self,
        path: Path,
        *,
        warm_up_steps: int,
        active_steps: int,
        max_events: int,
        max_bytes: int,
    ) -> None:
        self._path = path.with_suffix(".json")
        self._window = TorchWindow(warm_up_steps, active_steps)
        self._max_events = max_events
        self._max_bytes = max_bytes

    def open(self) -> None:
        """See ``TraceRecorder``."""
        if is_foreign():
            raise OccupiedError(_OCCUPIED)
        if not self._window.open(_activities()):
            raise NotNowError("a window of another profiler of ours is open")

    def _check_not_replaced(self) -> None:
        if self._window.is_replaced:
            raise OccupiedError(_OCCUPIED)

    def step(self) -> None:
        """See ``TraceRecorder``."""
        self._check_not_replaced()
        self._window.step()

    def close(self) -> Path:
        """See ``TraceRecorder``."""
        self._check_not_replaced()
        with self._window.finished() as profile:
            self._check_size(len(profile.profiler.kineto_results.events()))
            profile.export_chrome_trace(str(self._path))
        size_bytes = self._path.stat().st_size
        if size_bytes > self._max_bytes:
            self._path.unlink()
            raise TooLargeError(
                f"the trace of a window has {size_bytes:,} bytes, more than max_trace_bytes="
                f"{self._max_bytes:,}; give KernelProfiler fewer active_steps, or allow more"
            )
        return self._path

    def _check_size(self, events: int) -> None:
        if events > self._max_events or events * _BYTES_OF_EVENT > self._max_bytes:
            raise TooLargeError(
                f"a window has {events:,} events, more than max_events={self._max_events:,} or "
                f"than fit into max_trace_bytes={self._max_bytes:,}; give KernelProfiler fewer "
                "active_steps, or allow more"
            )

    def abort(self) -> None:
        """See ``TraceRecorder``; called on another thread than ``open``, it ends soon."""
        self._window.abort()


def _activities() -> list[Any]:
    """Return the activities of the CPU and of the accelerators that exist."""
    import torch
    from torch.profiler import ProfilerActivity

    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    if hasattr(torch, "xpu") and torch.xpu.is_available():
        activities.append(ProfilerActivity.XPU)
    return activities
