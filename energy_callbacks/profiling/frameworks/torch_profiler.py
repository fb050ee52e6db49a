"""PyTorch's profiler for one window: kernels and operators, nothing that costs more.

``record_shapes``, ``profile_memory``, ``with_stack`` and ``with_flops`` stay off: each makes steps
slower and traces larger, and stacks break the ranges of steps (pytorch/pytorch#174555).
"""

import threading
from pathlib import Path
from typing import Any, Final

from energy_callbacks.profiling.common.main_thread import on_thread
from energy_callbacks.profiling.frameworks import torch_window
from energy_callbacks.profiling.kernels.protocol import NotNowError, OccupiedError, TooLargeError

# A line of Kineto's JSON is 200 to 500 bytes (torch 2.13: 300 on average).
_BYTES_OF_EVENT: Final = 300


class TorchRecorder:
    """One window.

    Args:
        path: where to write, without an ending.
        warm_up_steps: in which CUPTI starts; they are thrown away.
        active_steps: that are recorded.
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
        self._steps = (warm_up_steps, active_steps)
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._profile: Any = None
        self._ready = self._is_taken = False
        self._thread = threading.get_ident()

    def open(self) -> None:
        """See ``TraceRecorder``."""
        from torch.profiler import ProfilerActivity, schedule

        if torch_window.is_foreign():
            raise OccupiedError(_OCCUPIED)
        if not torch_window.take():
            raise NotNowError("a window of another profiler of ours is open")
        warm_up, active = self._steps
        self._ready = self._is_taken = False
        self._profile = torch_window.profile(
            activities=[ProfilerActivity.CPU, *_accelerators()],
            schedule=schedule(wait=0, warmup=warm_up, active=active, repeat=1),
            on_trace_ready=self._note,
            record_shapes=False,
            profile_memory=False,
            with_stack=False,
            with_flops=False,
        )
        self._profile.start()
        torch_window.watch(self._leave)

    def _leave(self) -> None:
        """The training makes a profiler of its own."""
        self._end()
        self._is_taken = True

    def _check_ours(self) -> None:
        if self._is_taken:
            raise OccupiedError(_OCCUPIED)

    def _note(self, _: Any) -> None:
        self._ready = True

    def step(self) -> None:
        """See ``TraceRecorder``."""
        self._check_ours()
        self._profile.step()

    def close(self) -> Path:
        """See ``TraceRecorder``."""
        self._check_ours()
        profile, self._profile = self._profile, None
        try:
            profile.step()  # after the last active step PyTorch stops recording
            if not self._ready:
                raise RuntimeError("PyTorch's profiler has not ended its window")
            self._check(len(profile.profiler.kineto_results.events()))
            profile.export_chrome_trace(str(self._path))
        finally:
            profile.stop()
            profile.profiler = None  # it is part of a cycle, and may be large
            torch_window.give()
        size_bytes = self._path.stat().st_size
        if size_bytes > self._max_bytes:
            self._path.unlink()
            raise TooLargeError(
                f"the trace of a window has {size_bytes:,} bytes, more than max_trace_bytes="
                f"{self._max_bytes:,}; give KernelProfiler fewer active_steps, or allow more"
            )
        return self._path

    def _check(self, events: int) -> None:
        if events > self._max_events or events * _BYTES_OF_EVENT > self._max_bytes:
            raise TooLargeError(
                f"a window has {events:,} events, more than max_events={self._max_events:,} or "
                f"than fit into max_trace_bytes={self._max_bytes:,}; give KernelProfiler fewer "
                "active_steps, or allow more"
            )

    def abort(self) -> None:
        """See ``TraceRecorder``; from another thread than that of ``open``, soon."""
        if not on_thread(self._thread, self._end):
            self._end()

    def _end(self) -> None:
        profile, self._profile = self._profile, None
        if profile is not None:
            try:
                profile.stop()
            finally:
                torch_window.give()


_OCCUPIED: Final = (
    "the training has a torch.profiler.profile of its own, and PyTorch can run but one: "
    "KernelProfiler gives way; leave one of the two out"
)


def _accelerators() -> list[Any]:
    """Activities of the devices that are there."""
    import torch
    from torch.profiler import ProfilerActivity

    found = []
    if torch.cuda.is_available():
        found.append(ProfilerActivity.CUDA)
    if hasattr(torch, "xpu") and torch.xpu.is_available():
        found.append(ProfilerActivity.XPU)
    return found
