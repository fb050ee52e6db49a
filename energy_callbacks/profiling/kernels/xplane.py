"""Records and reads traces of TensorFlow and JAX: ``plugins/profile/<time>/*.xplane.pb``.

TensorBoard with the package ``xprof`` can show these traces. If ``xprof`` is installed, this module
also uses it to read a table of kernels from a trace. This happens in a separate process, because
``xprof`` loads the libraries of TensorFlow.
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from energy_callbacks.core.units import seconds_from_microseconds
from energy_callbacks.profiling.frameworks.protocol import WindowLimits
from energy_callbacks.profiling.kernels.classes import class_of, is_cudnn
from energy_callbacks.profiling.kernels.tally import KernelTally

# Timeout in seconds for ``xprof``, which reads about 10 MB per second.
_PATIENCE_S: Final = 60.0
# Name of a GPU's section in a trace.
_PLANE: Final = re.compile(rb"/device:GPU:(\d+)")
# Python program that writes the table of kernels by ``xprof`` to standard output.
_ASK: Final = """
import sys
from xprof.convert import raw_to_tool_data
found, _ = raw_to_tool_data.xspace_to_tool_data([sys.argv[1]], "kernel_stats", {})
sys.stdout.write(found.decode() if isinstance(found, bytes) else found)
"""


@dataclass(slots=True)
class XplaneRecorder:
    """Records one window of TensorFlow or JAX, whose profilers have no warm-up of their own.

    A ``TraceRecorder`` (``profiling/frameworks/protocol.py``).

    Args:
        framework: name of the framework.
        start: function that starts recording into a folder.
        stop: function that stops recording and writes the trace.
        path: folder for this window only. The frameworks name traces by the time in seconds, so two
            traces in one folder could get the same name.
        limits: length of the window and size of the trace.
    """

    framework: str
    start: Callable[[Path], None]
    stop: Callable[[], None]
    path: Path
    limits: WindowLimits
    _steps_to_start: int = field(default=0, init=False)
    _is_running: bool = field(default=False, init=False)

    def open(self) -> None:
        """Open the window; see ``TraceRecorder.open``."""
        shutil.rmtree(self.path, ignore_errors=True)  # may contain files of an earlier attempt
        self._steps_to_start = self.limits.warm_up_steps + 1
        self.step()

    def step(self) -> None:
        """Handle the end of a step; start recording after the last warm-up step."""
        self._steps_to_start -= 1
        if self._steps_to_start == 0:
            self.start(self.path)
            self._is_running = True

    def close(self) -> Path:
        """End the window and write the trace; see ``TraceRecorder.close``."""
        self._end()
        written = next(self.path.glob("plugins/profile/*/*.xplane.pb"), None)
        if written is None:
            raise FileNotFoundError(f"{self.framework}'s profiler wrote nothing to {self.path}")
        size_bytes = sum(part.stat().st_size for part in self.path.rglob("*") if part.is_file())
        if error := self.limits.too_large(size_bytes):
            shutil.rmtree(self.path)
            raise error
        return written

    def abort(self) -> None:
        """Discard the open window; the trace that the framework writes when it stops is deleted."""
        if self._is_running:
            self._end()
            shutil.rmtree(self.path, ignore_errors=True)

    def _end(self) -> None:
        self._is_running = False
        self.stop()


def kernels(path: Path, steps: int) -> KernelTally | None:
    """Return the time and the number of calls of each kernel in a window.

    Args:
        path: trace file, ``*.xplane.pb``.
        steps: number of recorded steps.

    Returns:
        Sums over all steps and devices, without idle time; ``None`` if ``xprof`` is not installed,
        or if the trace contains no kernels.

    Raises:
        ValueError: if ``xprof`` fails, or takes longer than 60 s.
    """
    if find_spec("xprof") is None:
        return None
    try:
        asked = subprocess.run(  # noqa: S603 - a fixed script and a path
            [sys.executable, "-c", _ASK, str(path)],
            capture_output=True,
            text=True,
            timeout=_PATIENCE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ValueError(f"xprof took longer than {_PATIENCE_S:.0f} s") from None
    if asked.returncode != 0:
        raise ValueError(f"xprof failed: {asked.stderr.strip()[-300:]}")
    return of_table(json.loads(asked.stdout), steps, devices(path))


def devices(path: Path) -> int:
    """Return the number of GPUs in a trace file, at least 1.

    Each GPU has a section ("plane") named ``/device:GPU:<number>``.
    """
    return max(len(set(_PLANE.findall(path.read_bytes()))), 1)


def of_table(table: dict[str, Any], steps: int, devices: int) -> KernelTally | None:
    """Return the time and the number of calls of each kernel; ``None`` if there are no kernels.

    Args:
        table: parsed JSON of xprof's table ``kernel_stats``, in the format of Google Charts, with
            all devices.
        steps: number of recorded steps.
        devices: number of devices.
    """
    places = {column["id"]: place for place, column in enumerate(table["cols"])}
    sums = KernelTally(has_device=True, steps=steps, devices=devices)
    for row in table["rows"]:
        name, calls, time_us = (
            row["c"][places[key]]["v"]
            for key in ("kernel_name", "occurrences", "total_duration_us")
        )
        time_s = seconds_from_microseconds(time_us)
        sums.time_s[name] += time_s
        sums.calls[name] += int(calls)
        sums.class_of[name] = class_of(name)
        sums.cudnn_s += time_s * is_cudnn(name)
    return sums if sums.time_s else None
