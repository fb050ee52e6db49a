"""Records the kernels of a few steps with PyTorch's profiler, and sums their time by source line.

PyTorch's profiler is configured to record only kernels, copies and the calls that launched them. In
the same steps, a ``LineTracker`` records which source lines the training thread executes. A kernel
belongs to the line that the training thread executed when the kernel was launched.
"""

import json
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from energy_callbacks.core.guard import logger
from energy_callbacks.core.units import seconds_from_microseconds
from energy_callbacks.profiling.common.line_tracker import LineTracker
from energy_callbacks.profiling.common.source_location import Line
from energy_callbacks.profiling.common.spans import length, spans, union
from energy_callbacks.profiling.frameworks import protocol
from energy_callbacks.profiling.frameworks.kineto import Trace
from energy_callbacks.profiling.frameworks.torch_profiler import TorchRecorder

MOST_BYTES: Final = 100 * 2**20
"""Maximum size of a trace in bytes."""
# Minimum number of training steps before the first window.
_FIRST_STEP: Final = 10
# If opening a window has failed this number of times, no more windows are opened.
_MOST_FAILURES: Final = 8


class KernelWindows:
    """Records a few windows and limits their cost, which is the time that they add to the training.

    Args:
        most: maximum number of windows.
        steps: number of recorded steps per window.
        max_overhead: another window opens only if the cost of all windows so far is at most this
            share of the time since this object was created. This limit does not apply to the first
            window, which opens after ten training steps or later.

    Attributes:
        seen_steps: number of training steps so far.
        cost_s: cost of all windows so far, in seconds.
    """

    def __init__(self, most: int, steps: int, max_overhead: float) -> None:
        self._most = most
        self._steps = steps
        self._max_overhead = max_overhead
        self._start_s = time.monotonic()
        self._last_s: float | None = None
        self._shortest_s: float | None = None
        self._window: KernelWindow | None = None
        self._done: list[KernelWindow] = []
        self._failures = 0
        self._due_step = _FIRST_STEP
        self.seen_steps = 0
        self.cost_s = 0.0

    def step(self, *, is_training: bool) -> None:
        """Handle the end of a step; open or close a window if one is due.

        The work of the step must have been queued on the device, but may still run.

        Args:
            is_training: whether the step belongs to the training. Other steps are not counted, and
                no window opens after them.
        """
        now_s = time.monotonic()
        self.seen_steps += is_training
        if self._last_s is not None and self._window is None:
            step_s = now_s - self._last_s
            self._shortest_s = min(self._shortest_s or step_s, step_s)
        if self._window is not None:
            if self._window.step():
                self._done.append(self._window)
                self._window = None
            step_s = time.monotonic() - (self._last_s or now_s)
            self.cost_s += max(step_s - (self._shortest_s or 0.0), 0.0)
        elif is_training and self._is_due(now_s):
            self._open()
            self.cost_s += time.monotonic() - now_s
        self._last_s = time.monotonic()

    def _is_due(self, now_s: float) -> bool:
        is_done = len(self._done) >= self._most or self._failures >= _MOST_FAILURES
        if is_done or self.seen_steps < self._due_step or not is_used():
            return False
        return not self._done or self.cost_s <= self._max_overhead * (now_s - self._start_s)

    def _open(self) -> None:
        window = KernelWindow(self._steps)
        if window.open():
            self._window = window
        else:  # another profiler or a debugger is running: retry when the step count has doubled
            self._failures += 1
            self._due_step = 2 * self.seen_steps

    def close(self) -> None:
        """Discard the open window, if any, and prevent further windows."""
        window, self._window, self._most = self._window, None, 0
        if window is not None:
            window.close()

    def result(self) -> tuple[int, dict[Line | None, float], float]:
        """Return the number of windows with a trace, and their mean kernel and busy times per step.

        ``KernelWindow.result`` describes both times.
        """
        results = [result for window in self._done if (result := window.result()) is not None]
        count = len(results)
        by_line: dict[Line | None, float] = defaultdict(float)
        for kernel_s, _ in results:
            for line, seconds in kernel_s.items():
                by_line[line] += seconds / count
        return count, by_line, sum(busy_s for _, busy_s in results) / max(count, 1)


def is_used() -> bool:
    """Return whether this process uses a GPU through PyTorch."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_initialized())


class KernelWindow:
    """Records kernels and executed source lines in some steps, which follow one warm-up step.

    Args:
        steps: number of recorded steps.
    """

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._left = steps + 1
        self._trace: str | None = None
        self._tracker = LineTracker()
        self._folder = tempfile.TemporaryDirectory()
        limits = protocol.WindowLimits(
            warm_up_steps=1, active_steps=steps, max_events=MOST_BYTES, max_bytes=MOST_BYTES
        )
        self._recorder = TorchRecorder(Path(self._folder.name) / "trace", limits, _activities)

    def open(self) -> bool:
        """Start the warm-up; return ``False`` if a profiler or a debugger is already running."""
        try:
            if sys.gettrace() is None:
                self._recorder.open()
                return True
        except (protocol.OccupiedError, RuntimeError):
            pass  # PyTorch raises RuntimeError if another profiler is running
        self._folder.cleanup()
        return False

    def step(self) -> bool:
        """Handle the end of a step, and return whether the window is over."""
        self._left -= 1
        try:
            if self._left > 0:
                self._recorder.step()
                if self._left == self._steps:
                    self._tracker.start()
                return False
            self._tracker.stop()
            self._trace = self._recorder.close().read_text(encoding="utf-8", errors="replace")
        except (protocol.OccupiedError, protocol.TooLargeError):
            self._tracker.stop()
        self._folder.cleanup()
        return True

    def close(self) -> None:
        """Discard the window.

        If a thread other than the one that opened the window calls this method, the window may end
        after the call.
        """
        self._tracker.stop()
        self._recorder.abort()
        self._folder.cleanup()

    def result(self) -> tuple[dict[Line | None, float], float] | None:
        """Return both results of ``kernel_times`` per step; ``None`` if there is no trace.

        The trace is missing if it was too large or is not valid JSON, or if the window was not
        completed. The first call of this method frees the trace.
        """
        text, self._trace = self._trace, None
        if text is None:
            return None
        try:
            trace = json.loads(text)
        except ValueError as error:
            # PyTorch 2.13 writes invalid JSON if the name of a record_function has a quote.
            logger.warning("the kernels of a window are not attributed to lines: %s", error)
            return None
        by_line, busy_s = kernel_times(trace, self._tracker.at)
        return {line: s / self._steps for line, s in by_line.items()}, busy_s / self._steps


def _activities() -> list[Any]:
    from torch.profiler import ProfilerActivity

    return [ProfilerActivity.CUDA]


def kernel_times(
    document: Mapping[str, Any], line_at: Callable[[float], Line | None]
) -> tuple[dict[Line | None, float], float]:
    """Return the kernel time of a PyTorch trace by source line, and the busy time of the devices.

    A kernel and the call that launched it have the same correlation id. Kernels of a CUDA graph
    have the correlation id of the graph's launch.

    Args:
        document: content of the trace file.
        line_at: returns the line that the training thread executed at a Unix time in ns; ``None``
            outside the user's code.

    Returns:
        First, the seconds of the kernels and copies that each line launched; the key ``None`` is
        for work that was launched outside the user's code, or whose launch is unknown. Second, the
        seconds in which at least one kernel or copy ran, summed over devices.
    """
    trace = Trace(document)
    by_line: dict[Line | None, float] = defaultdict(float)
    by_device: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for event in trace.on_device:
        at_us = event.launched_us
        line = None if at_us is None else line_at(trace.unix_ns(at_us))
        by_line[line] += seconds_from_microseconds(event.end_us - event.start_us)
        by_device[event.device].append((event.start_us, event.end_us))
    busy_us = sum(length(union(spans(pairs))) for pairs in by_device.values())
    return by_line, seconds_from_microseconds(busy_us)
