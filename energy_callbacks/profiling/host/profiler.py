"""``HostProfiler``: when it runs, and what it records."""

import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from energy_callbacks.accounting.attempt import ActiveAttempt
from energy_callbacks.accounting.line_profile import profile_lines
from energy_callbacks.core import atomic_files
from energy_callbacks.profiling.host.calls import Calls
from energy_callbacks.profiling.host.window import ProfileWindow
from energy_callbacks.profiling.host.workers import Workers

logger = logging.getLogger("energy_callbacks")

# Sensors report a moment within a second or two.
_PATIENCE_S: Final = 3.0
# What a report shows of a table that may be long.
_LINES: Final = 60


class HostProfiler:
    """Follow the Python calls of some training steps, and memory line by line in named functions.

    ::

        with EnergyMeter(profilers=[HostProfiler(functions=["mypackage.data:load"])]) as meter: ...

    Into ``<run folder>/profile``: ``host.prof`` for SnakeViz and ``pstats``, ``memory_lines.txt``,
    and the same of each worker process of a ``DataLoader`` with its number in the name. Only rank
    0 is followed. Both slow down what they follow.

    Args:
        skip: steps before the window.
        steps: that it holds.
        longest_s: the window ends with the first step after this many seconds.
        functions: whose lines are followed, ``"module:function"``, ``"module:Class.method"``, or
            the function itself; from the beginning to the end.
        whole: follow the program from the beginning on, for those that make no steps; if there
            are steps, what came before the window is thrown away.

    Raises:
        ValueError: for numbers that make no window, or a name that leads nowhere.
        TypeError: if a name leads to something that is not a Python function.
    """

    def __init__(
        self,
        *,
        skip: int = 10,
        steps: int = 20,
        longest_s: float = 60.0,
        functions: str | Sequence[str | Callable[..., Any]] = (),
        whole: bool = False,
    ) -> None:
        if skip < 0 or steps < 1 or longest_s <= 0.0 or int(skip) != skip or int(steps) != steps:
            raise ValueError(
                f"HostProfiler(skip={skip}, steps={steps}, longest_s={longest_s}): skip and "
                "steps are whole numbers from 0 and 1 on, longest_s is more than 0"
            )
        self._skip, self._steps, self._longest_s, self._whole = skip, steps, longest_s, whole
        named = (functions,) if isinstance(functions, str) else functions
        self._functions = profile_lines(*named).names if named else ()
        self._meter: ActiveAttempt | None = None
        self._begin_afresh()

    def _begin_afresh(self) -> None:
        self._window: ProfileWindow | None = None
        self._lines: profile_lines | None = None
        self._workers: Workers | None = None
        self._seen = 0
        self._first_step = 0
        self._start_s = self._end_s = 0.0
        self._is_over = False

    def start(self, meter: ActiveAttempt) -> None:
        """Follow the lines of the functions; the calls wait for their window."""
        self._begin_afresh()
        self._meter = meter if meter.rank == 0 else None
        if self._meter is None:
            return
        if self._functions:
            self._lines = profile_lines(*self._functions).__enter__()
        self._workers = Workers(
            self._folder,
            functions=self._functions,
            batches=self._steps,
            longest_s=self._longest_s,
            inherited=self._lines,
        )
        self._workers.start()
        if self._whole or self._skip == 0:
            self._open(meter.now_s())

    @property
    def _folder(self) -> Path:
        assert self._meter is not None
        return self._meter.run_folder / "profile"

    def mark(self, name: str, t_s: float) -> None:
        """Only steps count."""

    def step(self, t_s: float) -> None:
        """Open or close the window."""
        if self._meter is None or self._is_over:
            return
        self._seen += 1
        if self._seen == self._skip:
            self._close(t_s)
            self._is_over = False
            self._open(t_s)
        elif self._seen > self._skip and (
            self._seen - self._skip >= self._steps or t_s - self._start_s >= self._longest_s
        ):
            self._close(t_s)

    def _open(self, t_s: float) -> None:
        self._first_step = self._seen
        self._start_s = t_s
        try:
            self._window = ProfileWindow()
        except ValueError as error:
            self._is_over = True
            logger.warning("HostProfiler follows no calls: %s", error)

    def _close(self, t_s: float) -> None:
        self._is_over = True
        if self._window is not None:
            self._window.end()
            self._end_s = t_s

    def stop(self) -> None:
        """Put the functions back; write files and the record."""
        meter = self._meter
        if meter is None:
            return
        if self._window is not None and not self._is_over:
            self._close(meter.now_s())
        if self._lines is not None:
            self._lines.__exit__(None, None, None)
        workers = self._workers.stop() if self._workers is not None else None
        record: dict[str, Any] = {"calls": None, "memory": None, "workers": workers}
        if self._window is not None:
            record["calls"] = self._calls(meter, self._window.save(self._folder / "host.prof"))
        if self._lines is not None and (text := self._lines.text):
            record["memory"] = _memory(text, self._folder / "memory_lines.txt")
        self._meter = self._window = self._lines = self._workers = None
        if any(record.values()):
            meter.record_profile("host", record)

    def _calls(self, meter: ActiveAttempt, calls: Calls) -> dict[str, Any]:
        """The record of the window, with the host's energy."""
        energy_j = None
        if self._end_s > self._start_s:
            meter.wait_until_seen(self._end_s, _PATIENCE_S)
            found = meter.energy(self._start_s, self._end_s, "host")
            energy_j = found.energy_j if found.is_resolved else None
        return {
            "file": "host.prof",
            "steps": self._seen_in_window,
            "first_step": self._first_step,
            "duration_s": self._end_s - self._start_s,
            "own_s": calls.own_s,
            "energy_j": energy_j,
            "all_threads": sys.version_info >= (3, 12),
            "functions": calls.top(),
            "tree": calls.tree(),
        }

    @property
    def _seen_in_window(self) -> int:
        return self._seen - self._first_step

    def __getstate__(self) -> dict[str, Any]:
        """A copy never runs."""
        state = self.__dict__.copy()
        state.update(_meter=None, _window=None, _lines=None, _workers=None)
        return state


def _memory(text: str, path: Path) -> dict[str, Any]:
    """The table into a file; its first lines for the report."""
    atomic_files.write(path, text)
    lines = text.splitlines()
    return {"file": path.name, "lines": lines[:_LINES], "left_out": max(len(lines) - _LINES, 0)}
