"""Loads the simulated NVML into this process, where the real ``pynvml`` finds it.

``pynvml`` asks for ``libnvidia-ml.so.1``. The dynamic linker answers with a library of that SONAME
that is loaded already, so loading ours first is enough. It stays loaded until the process ends (a
thread may hang in it); without a scenario it behaves like a machine without a driver. Tests on a
real GPU therefore need a process of their own.
"""

import ctypes
import functools
import os
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pynvml

from tests.fake_nvml.build import build
from tests.fake_nvml.changes import Change, read_changes
from tests.fake_nvml.scenario import Scenario

REAL_TIME = -1.0


class VirtualTime:
    """The library's clock: moves only when told to, and by the cost of calls.

    ``unix_s``, ``monotonic_s`` and ``sleep`` are for injection as a clock.
    """

    def __init__(self, start_unix_s: float) -> None:
        self._library = load_library()
        self._start_unix_s = start_unix_s
        self.set(start_unix_s)

    def set(self, unix_s: float) -> None:
        """Set the Unix time (rounded to a microsecond); it may go backwards."""
        self._library.fakeNvmlSetTime(unix_s)

    def advance(self, duration_s: float) -> None:
        """Let time pass."""
        self.set(self.unix_s() + duration_s)

    sleep = advance

    def unix_s(self) -> float:
        """Return virtual Unix time, with a resolution of a quarter of a microsecond."""
        return float(self._library.fakeNvmlNow())

    def monotonic_s(self) -> float:
        """Return virtual seconds since the start."""
        return float(self._library.fakeNvmlNow() - self._start_unix_s)

    def release(self) -> None:
        """Return to the real clock."""
        self._library.fakeNvmlSetTime(REAL_TIME)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


class FakeNvml:
    """Plays a scenario in this process until ``close``; virtual time begins at its epoch."""

    def __init__(self, scenario: Scenario, folder: Path, *, virtual: bool = True) -> None:
        self.scenario = scenario
        self.path = scenario.write(folder / f"scenario-{time.monotonic_ns()}.txt")
        self._library = load_library()
        reset_pynvml()
        if self._library.fakeNvmlLoad(os.fsencode(self.path)) != 0:
            raise ValueError(self._library.fakeNvmlErrorText().decode())
        self._time = VirtualTime(scenario.epoch_unix_s) if virtual else None

    @property
    def time(self) -> VirtualTime:
        """The virtual clock."""
        if self._time is None:
            raise ValueError("this scenario plays in real time; load it with virtual=True")
        return self._time

    def env(self) -> dict[str, str]:
        """Environment of a child process that sees the same cards; its time begins as ours is."""
        start_unix_s = None if self._time is None else self._time.unix_s()
        return env(self.path, start_unix_s=start_unix_s)

    def energy_j(self, card: int, start_unix_s: float, end_unix_s: float) -> float:
        """Return the true energy, with all changes of settings so far."""
        return self.scenario.energy_j(card, start_unix_s, end_unix_s, self.changes())

    def power_w(self, card: int, unix_s: float) -> float:
        """Return the true power, with all changes of settings so far."""
        return self.scenario.power_w(card, unix_s, self.changes())

    def changes(self) -> list[Change]:
        """Return all changes of settings and loads so far, of all processes."""
        return read_changes(self.path)

    def setter_calls(self) -> list[Change]:
        """Return all calls of NVML's setters so far, of all processes, refused ones included."""
        return [change for change in self.changes() if change.call != "load"]

    def step_s(self, card: int = 0) -> float:
        """Return the time of a step at the present settings, s."""
        return float(self._library.fakeNvmlStepS(card))

    def set_load(self, load: float, card: int = 0) -> None:
        """Set the share of its power above idle that a card uses from now on."""
        self._library.fakeNvmlSetLoad(card, load)

    def begin_faults(self) -> None:
        """Let all faults of the scenario begin now."""
        self._library.fakeNvmlBeginFaults()

    def c_power_w(self, card: int, unix_s: float) -> float:
        """Return true power as the C library computes it."""
        return float(self._library.fakeNvmlSignalPower(card, unix_s))

    def c_energy_j(self, card: int, start_unix_s: float, end_unix_s: float) -> float:
        """Return true energy as the C library computes it."""
        return float(self._library.fakeNvmlSignalEnergy(card, start_unix_s, end_unix_s))

    def c_filtered_w(self, card: int, unix_s: float, response_s: float) -> float:
        """Return power after a first-order low-pass, the input of the sensors."""
        return float(self._library.fakeNvmlSignalFiltered(card, unix_s, response_s))

    def gpm_samples(self) -> int:
        """Return how many GPM samples are allocated in the whole process."""
        return int(self._library.fakeNvmlGpmSamples())

    def close(self) -> None:
        """Remove the driver, return to real time, and reset ``pynvml``."""
        self._library.fakeNvmlUnload()
        self._library.fakeNvmlSetTime(REAL_TIME)
        reset_pynvml()


@functools.cache
def load_library() -> ctypes.CDLL:
    """Compile if needed and load the library for the whole process."""
    library = ctypes.CDLL(str(build()), mode=ctypes.RTLD_GLOBAL)
    _declare(library, "fakeNvmlSetTime", None, ctypes.c_double)
    _declare(library, "fakeNvmlNow", ctypes.c_double)
    _declare(library, "fakeNvmlLoad", ctypes.c_int, ctypes.c_char_p)
    _declare(library, "fakeNvmlUnload", None)
    _declare(library, "fakeNvmlErrorText", ctypes.c_char_p)
    _declare(library, "fakeNvmlGpmSamples", ctypes.c_int)
    _declare(library, "fakeNvmlStepS", ctypes.c_double, ctypes.c_uint)
    _declare(library, "fakeNvmlBeginFaults", None)
    _declare(library, "fakeNvmlSetLoad", None, ctypes.c_uint, ctypes.c_double)
    two = (ctypes.c_double, ctypes.c_double)
    _declare(library, "fakeNvmlSignalPower", ctypes.c_double, ctypes.c_uint, ctypes.c_double)
    _declare(library, "fakeNvmlSignalEnergy", ctypes.c_double, ctypes.c_uint, *two)
    _declare(library, "fakeNvmlSignalFiltered", ctypes.c_double, ctypes.c_uint, *two)
    return library


def _declare(library: ctypes.CDLL, name: str, result: Any, *arguments: Any) -> None:
    function = getattr(library, name)
    function.restype = result
    function.argtypes = arguments


def reset_pynvml() -> None:
    """Make ``pynvml`` forget its library, its function pointers and its count of inits."""
    pynvml.nvmlLib = None
    pynvml._nvmlGetFunctionPointer_cache.clear()
    pynvml._nvmlLib_refcount = 0


def env(
    path: Path,
    *,
    start_unix_s: float | None = None,
    base: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Environment for a child process: ``base`` (default: ours) plus the library and the scenario.

    With ``start_unix_s`` the child runs in virtual time from there, else in real time.
    """
    variables = dict(os.environ if base is None else base)
    folders = [str(build().parent), *filter(None, [variables.get("LD_LIBRARY_PATH")])]
    variables["LD_LIBRARY_PATH"] = os.pathsep.join(folders)
    variables["FAKE_NVML_CONFIG"] = str(path)
    variables.pop("FAKE_NVML_TIME", None)
    if start_unix_s is not None:
        variables["FAKE_NVML_TIME"] = repr(start_unix_s)
    return variables
