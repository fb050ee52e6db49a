"""Parses traces of TensorFlow and JAX: ``plugins/profile/<window>/*.xplane.pb``.

TensorBoard with the package ``xprof`` shows it. The same package, if it is installed, gives
the table of kernels; it is asked in a process of its own, as its libraries are those of TensorFlow.
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from energy_callbacks.core.units import seconds_from_microseconds
from energy_callbacks.profiling.kernels.classes import class_of, is_cudnn
from energy_callbacks.profiling.kernels.protocol import TooLargeError
from energy_callbacks.profiling.kernels.tally import KernelTally

# It reads some ten MB a second.
_PATIENCE_S: Final = 60.0
_PLANE: Final = re.compile(rb"/device:GPU:(\d+)")
_ASK: Final = """
import sys
from xprof.convert import raw_to_tool_data
found, _ = raw_to_tool_data.xspace_to_tool_data([sys.argv[1]], "kernel_stats", {})
sys.stdout.write(found.decode() if isinstance(found, bytes) else found)
"""


class XplaneRecorder:
    """One window of a profiler without a warm-up of its own: the first steps only pass.

    Args:
        framework: whose profiler it is.
        start: begins to record into a folder.
        stop: ends, and writes.
        path: a folder of this window alone, for the frameworks name theirs by the second.
        warm_up_steps: before it starts.
        max_bytes: of a trace.
    """

    def __init__(
        self,
        framework: str,
        *,
        start: Callable[[Path], None],
        stop: Callable[[], None],
        path: Path,
        warm_up_steps: int,
        max_bytes: int,
    ) -> None:
        self.framework = framework
        self._start, self._stop = start, stop
        self._path = path
        self._warm_up_steps = warm_up_steps
        self._max_bytes = max_bytes
        self._left = 0
        self._is_running = False

    def open(self) -> None:
        """See ``TraceRecorder``."""
        shutil.rmtree(self._path, ignore_errors=True)  # of an earlier attempt
        self._left = self._warm_up_steps + 1
        self.step()

    def step(self) -> None:
        """See ``TraceRecorder``."""
        self._left -= 1
        if self._left == 0:
            self._start(self._path)
            self._is_running = True

    def close(self) -> Path:
        """See ``TraceRecorder``."""
        self._end()
        written = next(self._path.glob("plugins/profile/*/*.xplane.pb"), None)
        if written is None:
            raise FileNotFoundError(f"{self.framework}'s profiler wrote nothing to {self._path}")
        size_bytes = sum(part.stat().st_size for part in self._path.rglob("*") if part.is_file())
        if size_bytes > self._max_bytes:
            shutil.rmtree(self._path)
            raise TooLargeError(
                f"the trace of a window has {size_bytes:,} bytes, more than max_trace_bytes="
                f"{self._max_bytes:,}; give KernelProfiler fewer active_steps, or allow more"
            )
        return written

    def abort(self) -> None:
        """See ``TraceRecorder``; what the framework writes nevertheless is removed."""
        if self._is_running:
            self._end()
            shutil.rmtree(self._path, ignore_errors=True)

    def _end(self) -> None:
        self._is_running = False
        self._stop()


def kernels(path: Path, steps: int) -> KernelTally | None:
    """The kernels of a window.

    Args:
        path: of an ``xplane.pb``.
        steps: that it recorded.

    Returns:
        Time and calls by kernel, no idle time; ``None`` if ``xprof`` is not installed, does
        not understand the file, or no accelerator worked.
    """
    if find_spec("xprof") is None:
        return None
    asked = subprocess.run(  # noqa: S603 - our own words and a path
        [sys.executable, "-c", _ASK, str(path)],
        capture_output=True,
        text=True,
        timeout=_PATIENCE_S,
        check=False,
    )
    if asked.returncode != 0:
        return None
    return of_table(json.loads(asked.stdout), steps, devices(path))


def devices(path: Path) -> int:
    """How many GPUs a trace names, at least one: each has a plane ``/device:GPU:<number>``."""
    return max(len(set(_PLANE.findall(path.read_bytes()))), 1)


def of_table(table: dict[str, Any], steps: int, devices: int) -> KernelTally | None:
    """The same from ``kernel_stats``, a table in the form of Google's charts, of all devices."""
    places = {column["id"]: place for place, column in enumerate(table["cols"])}
    found = KernelTally(has_device=True, steps=steps, devices=devices)
    for row in table["rows"]:
        name, calls, time_us = (
            row["c"][places[key]]["v"]
            for key in ("kernel_name", "occurrences", "total_duration_us")
        )
        time_s = seconds_from_microseconds(time_us)
        found.time_s[name] += time_s
        found.calls[name] += int(calls)
        found.class_of[name] = class_of(name)
        found.cudnn_s += time_s * is_cudnn(name)
    return found if found.time_s else None
