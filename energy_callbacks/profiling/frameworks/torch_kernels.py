"""PyTorch's profiler for two steps: kernels and the calls that launched them, nothing else."""

import json
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final

from energy_callbacks.profiling.common.main_thread import on_thread
from energy_callbacks.profiling.frameworks import torch_window
from energy_callbacks.profiling.lines.kernel_times import kernel_times
from energy_callbacks.profiling.lines.line_tracker import LineTracker, TrackedLines
from energy_callbacks.profiling.lines.source_location import Line

MOST_BYTES: Final = 100 * 2**20


def is_used() -> bool:
    """Whether this process uses a GPU through PyTorch."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())


def _activities() -> list[Any]:
    from torch.profiler import ProfilerActivity

    return [ProfilerActivity.CUDA]


class Window:
    """One step to warm up and some that are recorded, while this thread follows itself.

    Args:
        steps: to record.
    """

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.cost_s = 0.0
        self._left = steps + 1
        self._profile: Any = None
        self._trace: str | None = None
        self._follower = LineTracker()
        self._thread = threading.get_ident()

    def open(self) -> bool:
        """Begin to warm up; ``False`` if another profiler is running."""
        from torch.profiler import schedule

        if sys.gettrace() is not None or torch_window.is_foreign() or not torch_window.take():
            return False
        profiler = torch_window.profile(
            activities=_activities(),
            schedule=schedule(wait=0, warmup=1, active=self.steps, repeat=1),
            on_trace_ready=self._keep,
        )
        try:
            profiler.start()
        except RuntimeError:  # another profiler, of the user's
            torch_window.give()
            return False
        self._profile = profiler
        torch_window.watch(self._end)
        return True

    def step(self) -> bool:
        """A step has been queued; whether the window is over."""
        if self._profile is None:  # the training has made a profiler of its own
            return True
        self._left -= 1
        if self._left == 0:
            self.close()
            return True
        if self._left == self.steps:
            self._profile.step()
            self._follower.start()
        else:
            self._profile.step()
        return False

    def close(self) -> None:
        """End it, wherever it is; from another thread than its own, soon."""
        self._follower.stop()
        if not on_thread(self._thread, self._end):
            self._end()

    def _end(self) -> None:
        profiler, self._profile = self._profile, None
        if profiler is None:
            return
        self._follower.stop()
        try:
            profiler.step() if self._left == 0 else profiler.stop()
            if self._left == 0:
                profiler.stop()
        finally:
            torch_window.give()

    def _keep(self, profiler: Any) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            profiler.export_chrome_trace(str(path))
            if path.stat().st_size <= MOST_BYTES:
                self._trace = path.read_text(encoding="utf-8", errors="replace")

    def result(self) -> tuple[dict[Line | None, float], float] | None:
        """Result of ``kernel_times`` per step; ``None`` if the trace was too large or cut."""
        if self._trace is None or self._left != 0:
            return None
        trace, self._trace = json.loads(self._trace), None
        by_line, busy_s = kernel_times(trace, self.followed.at)
        return {line: s / self.steps for line, s in by_line.items()}, busy_s / self.steps

    @property
    def followed(self) -> TrackedLines:
        """The lines of the window."""
        return self._follower.followed


def opened(steps: int) -> tuple[Window | None, float]:
    """A window that has begun, if it may, and the seconds that took."""
    start_s = time.monotonic()
    window = Window(steps)
    is_open = window.open()
    return (window if is_open else None), time.monotonic() - start_s
