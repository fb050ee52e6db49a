"""``HostProfiler``: profiles Python calls of some steps, and memory use of functions by line."""

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from energy_callbacks.accounting.attempt import ActiveAttempt
from energy_callbacks.accounting.line_profile import profile_lines
from energy_callbacks.core import atomic_files
from energy_callbacks.core.guard import logger
from energy_callbacks.profiling.common.attempt_profiler import AttemptProfiler
from energy_callbacks.profiling.host.calls import ProfileWindow
from energy_callbacks.profiling.host.workers import Workers, WorkerTracker

# Maximum time to wait for sensor readings, which arrive with a delay of one to two seconds.
_PATIENCE_S: Final = 3.0
# Maximum number of lines of the memory table in the report.
_LINES: Final = 60


@dataclass(eq=False, kw_only=True)
class HostProfiler(AttemptProfiler["_HostRun"]):
    """Profiles the Python calls of some training steps, and the memory use of functions by line.

    ::

        with EnergyMeter(profilers=[HostProfiler(functions=["mypackage.data:load"])]) as meter: ...

    The files are in ``<run folder>/profile``: ``host.prof`` for SnakeViz and ``pstats``, and
    ``memory_lines.txt``. Each worker process of a ``DataLoader`` writes such files with its
    process id in their names. Only rank 0 is profiled. Profiling of calls and profiling of memory
    both slow down the profiled code.

    Args:
        skip: number of steps before the profiled ones.
        steps: maximum number of profiled steps.
        longest_s: if the profile of calls has lasted this many seconds at the end of a profiled
            step, it ends with that step.
        functions: functions whose memory is measured by line during the whole attempt:
            ``"module:function"``, ``"module:Class.method"``, or the function itself; one of them
            needs no list.
        whole: whether to profile calls from the beginning, for programs that report no steps. If
            the program reports ``skip`` steps nevertheless, a new profile begins then, and replaces
            the profile from the beginning.

    Raises:
        ValueError: if a number is out of range or a function does not exist.
        TypeError: if an element of ``functions`` does not denote a Python function.
    """

    skip: int = 10
    steps: int = 20
    longest_s: float = 60.0
    functions: str | Callable[..., Any] | Sequence[str | Callable[..., Any]] = ()
    whole: bool = False

    def __post_init__(self) -> None:
        skip, steps, longest_s = self.skip, self.steps, self.longest_s
        is_in_range = 0 <= skip < math.inf and 1 <= steps < math.inf and longest_s > 0.0
        if not is_in_range or int(skip) != skip or int(steps) != steps:
            raise ValueError(
                f"HostProfiler(skip={skip}, steps={steps}, longest_s={longest_s}): skip and "
                "steps are whole numbers from 0 and 1 on, longest_s is more than 0"
            )
        functions = self.functions
        named = (functions,) if isinstance(functions, str) or callable(functions) else functions
        self.functions = self.names = profile_lines(*named).names if named else ()

    def _begin(self, meter: ActiveAttempt) -> "_HostRun | None":
        if meter.rank != 0 or meter.run_folder is None:
            return None
        return _HostRun(self, meter, meter.run_folder / "profile")


class _HostRun:
    """Profiles one attempt.

    Args:
        settings: settings of the profiler.
        meter: the attempt.
        folder: folder for the files.
    """

    def __init__(self, settings: HostProfiler, meter: ActiveAttempt, folder: Path) -> None:
        self._settings, self._meter, self._folder = settings, meter, folder
        self._window: ProfileWindow | None = None
        self._seen = self._first_step = 0
        self._start_s = self._end_s = 0.0
        self._is_over = False
        self._lines: profile_lines | None = None
        if settings.names:
            self._lines = profile_lines(*settings.names).__enter__()
        self._workers = Workers(
            WorkerTracker(
                folder=folder,
                functions=settings.names,
                batches=settings.steps,
                longest_s=settings.longest_s,
                inherited=self._lines,
            )
        )
        if settings.whole or settings.skip == 0:
            self._open(meter.now_s())

    def mark(self, name: str, t_s: float) -> None:
        """Do nothing: events other than steps do not affect the profiled period."""

    def step(self, t_s: float) -> None:
        """Handle the end of a step; begin or end the profile of calls if due."""
        if self._is_over:
            return
        settings = self._settings
        self._seen += 1
        steps = self._seen - settings.skip
        if steps == 0:
            self._close(t_s)
            self._open(t_s)
        elif steps >= settings.steps or (steps > 0 and t_s - self._start_s >= settings.longest_s):
            self._close(t_s)

    def _open(self, t_s: float) -> None:
        try:
            self._window = ProfileWindow()
        except ValueError as error:
            self._is_over = True
            logger.warning("HostProfiler records no more calls: %s", error)
        else:
            self._first_step, self._start_s = self._seen, t_s
            self._is_over = False

    def _close(self, t_s: float) -> None:
        self._is_over = True
        if self._window is not None:
            self._window.end()
            self._end_s = t_s

    def stop(self) -> None:
        """End all profiles, and write their files and the record."""
        if self._window is not None and not self._is_over:
            self._close(self._meter.now_s())
        if self._lines is not None:
            self._lines.__exit__(None, None, None)
        record: dict[str, Any] = {"calls": None, "memory": None, "workers": self._workers.stop()}
        if self._window is not None:
            record["calls"] = self._calls(self._window)
        if self._lines is not None and (text := self._lines.text):
            record["memory"] = _memory(text, self._folder / "memory_lines.txt")
        if any(record.values()):
            self._meter.record_profile("host", record)

    def _calls(self, window: ProfileWindow) -> dict[str, Any]:
        """Write ``host.prof``; return a record of the calls and the host's energy in the period."""
        calls = window.save(self._folder / "host.prof")
        energy_j = None
        if self._end_s > self._start_s:
            self._meter.wait_until_seen(self._end_s, _PATIENCE_S)
            energy_j = self._meter.energy(self._start_s, self._end_s, "host").resolved_j
        return {
            "file": "host.prof",
            "steps": self._seen - self._first_step,
            "first_step": self._first_step,
            "duration_s": self._end_s - self._start_s,
            "own_s": calls.own_s,
            "energy_j": energy_j,
            "all_threads": sys.version_info >= (3, 12),
            "functions": calls.top(),
            "tree": calls.tree(),
        }


def _memory(text: str, path: Path) -> dict[str, Any]:
    """Write the memory table to a file; return a record with the first lines of the table."""
    atomic_files.write(path, text)
    lines = text.splitlines()
    return {"file": path.name, "lines": lines[:_LINES], "left_out": max(len(lines) - _LINES, 0)}
