"""Clocks, which tell the time, wait, and run jobs at regular intervals.

All code that needs time takes a ``Clock``. Tests pass ``energy_callbacks.testing.FakeClock``, which
simulates a whole day within seconds and starts no thread.
"""

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Final, Protocol

from energy_callbacks.core import yielding

PUNCTUAL_S: Final = 0.0005
"""How many seconds early a thread may wake up and still count as on time."""
_TRIES: Final = 3
# Longest wait for a thread whose job has ended, s. It has only a few instructions left to execute.
_JOIN_S: Final = 0.1


class Latch:
    """An event that happens once.

    A signal handler may interrupt ``set`` or ``wait`` and call them on the same thread. With
    ``threading.Event``, the handler could wait for a lock that its own thread holds.

    Attributes:
        is_set: whether the event has happened.
    """

    def __init__(self) -> None:
        self.is_set = False
        self._gate = threading.Lock()  # locked until the event has happened
        self._gate.acquire()

    def set(self) -> None:
        """Record that the event has happened, and wake all threads that wait for it."""
        self.is_set = True
        _open(self._gate)

    def wait(self, timeout_s: float) -> bool:
        """Wait for the event, at most ``timeout_s``, and return whether it has happened."""
        if not self.is_set and self._gate.acquire(timeout=max(timeout_s, 0.0)):
            _open(self._gate)  # for the next thread that waits
        return self.is_set


class _Alarm:
    """Wakes the thread of a job. Like those of ``Latch``, its methods may be interrupted.

    Attributes:
        is_stopping: whether the thread must end after one more call of the job.
    """

    def __init__(self) -> None:
        self.is_stopping = False
        self._gate = threading.Lock()  # open while the thread must not sleep

    def ring(self) -> None:
        """Wake the thread, or keep it from falling asleep next."""
        _open(self._gate)

    def clear(self) -> None:
        """Ignore earlier calls of ``ring``."""
        self._gate.acquire(blocking=False)

    def wait(self, timeout_s: float) -> None:
        """Sleep until ``ring`` is called, at most ``timeout_s``."""
        self._gate.acquire(timeout=min(timeout_s, threading.TIMEOUT_MAX))


def _open(gate: threading.Lock) -> None:
    with contextlib.suppress(RuntimeError):  # it is open already
        gate.release()


class Periodic(Protocol):
    """A job that runs at a regular interval, and one last time after it is asked to stop."""

    def run_soon(self) -> None:
        """Begin the next call of the job now, or when the present call ends; do not wait for it."""
        ...

    def ask_to_stop(self) -> None:
        """Ask the job to run one last time and then end; return without waiting for this."""
        ...

    def wait(self, timeout_s: float) -> bool:
        """Wait for the end of the job, at most ``timeout_s``, and return whether it has ended."""
        ...

    @property
    def cpu_s(self) -> float:
        """Total processor time of the job, s; 0 until the job has ended, except inside the job."""
        ...


class Clock(Protocol):
    """A source of time."""

    def monotonic_s(self) -> float:
        """Return a time in seconds that never jumps; all spans and windows use this time."""
        ...

    def unix_s(self) -> float:
        """Return the seconds since 1970, which jump when the machine's clock is set."""
        ...

    def sleep(self, duration_s: float) -> None:
        """Block the calling thread for ``duration_s`` seconds."""
        ...

    def every(self, interval_s: float, job: Callable[[], float | None], name: str) -> Periodic:
        """Run ``job`` in the background, immediately and then every ``interval_s`` seconds.

        Args:
            interval_s: time from the start of one call of ``job`` to the start of the next.
            job: function that must not raise. It may return another interval in seconds, which
                applies once, from the start of this call to the start of the next call.
            name: name of the thread.
        """
        ...


def clock_offset(clock: Clock) -> tuple[float, float]:
    """Return the monotonic time and (wall time - monotonic time), from the fastest of 3 tries."""
    tries = []
    for _ in range(_TRIES):
        before_s, unix_s, after_s = clock.monotonic_s(), clock.unix_s(), clock.monotonic_s()
        tries.append((after_s - before_s, after_s, unix_s - (before_s + after_s) / 2.0))
    _, now_s, offset_s = min(tries)
    return now_s, offset_s


class SystemClock:
    """The system's clock, which runs each job on its own daemon thread."""

    monotonic_s = staticmethod(time.monotonic)
    unix_s = staticmethod(time.time)

    def sleep(self, duration_s: float) -> None:
        """Call ``time.sleep``."""
        time.sleep(duration_s)

    def every(self, interval_s: float, job: Callable[[], float | None], name: str) -> Periodic:
        """Start a daemon thread that runs ``job``."""
        return _PeriodicThread(interval_s, job, name)


class _PeriodicThread:
    """A daemon thread that calls a job at regular intervals.

    A call that begins late does not delay later calls, unless it lasts beyond the next start time
    or returns another interval (see ``Clock.every``).
    """

    def __init__(self, interval_s: float, job: Callable[[], float | None], name: str) -> None:
        self._interval_s = interval_s
        self._job = job
        self._alarm = _Alarm()
        self._ended = Latch()
        self._cpu_s = 0.0
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def cpu_s(self) -> float:
        """See ``Periodic``."""
        # Read only at the end: reading takes up to 0.6 ms on a virtual machine.
        is_inside = threading.current_thread() is self._thread
        return time.thread_time() if is_inside else self._cpu_s

    def _run(self) -> None:
        deadline_s = time.monotonic()
        while True:
            self._alarm.clear()
            is_last = self._alarm.is_stopping
            began_s = time.monotonic()
            yielding.begin()
            interval_s = self._job()
            if is_last:
                self._cpu_s = self.cpu_s
                self._ended.set()
                return
            now_s = time.monotonic()
            own_s = None if interval_s is None else began_s + interval_s
            deadline_s = max(own_s or deadline_s + self._interval_s, now_s)
            self._alarm.wait(deadline_s - now_s)

    def run_soon(self) -> None:
        """See ``Periodic``."""
        self._alarm.ring()

    def ask_to_stop(self) -> None:
        """See ``Periodic``."""
        self._alarm.is_stopping = True
        self._alarm.ring()

    def wait(self, timeout_s: float) -> bool:
        """See ``Periodic``."""
        if self._ended.wait(timeout_s):
            self._thread.join(_JOIN_S)
        return self._ended.is_set
