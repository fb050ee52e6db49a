"""A clock whose jobs can be held up: a running meter of which no thread does anything."""

import threading
import time
from collections.abc import Callable
from typing import Final

from energy_callbacks.sensing.beat import BEAT_S
from energy_callbacks.sensing.clock import Periodic, SystemClock

_LATE_S: Final = 0.01


class PausableClock(SystemClock):
    """The real clock; between ``pause`` and ``resume`` no job begins a turn.

    Starting and stopping a meter for each half second would cost more than what is measured. A
    paused thread waits for a lock and takes no processor time. A turn that was due in the pause is
    left out, so that rounds between pauses see as many of them as a training does; what it would
    have read is read by the next one, which has a little more to do.
    """

    def __init__(self) -> None:
        self._locks: list[threading.Lock] = []
        self._is_paused = False

    def every(self, interval_s: float, job: Callable[[], float | None], name: str) -> Periodic:
        """See ``Clock``."""
        lock = threading.Lock()
        self._locks.append(lock)

        def turn() -> float | None:
            due_s = time.monotonic()
            with lock:
                late_s = time.monotonic() - due_s
                return job() if late_s < _LATE_S else (late_s // BEAT_S + 1.0) * BEAT_S

        return super().every(interval_s, turn, name)

    def pause(self) -> None:
        """Hold up all jobs; returns when the turns that are under way have ended."""
        if not self._is_paused:
            for lock in self._locks:
                lock.acquire()
        self._is_paused = True

    def resume(self) -> None:
        """Let them go on."""
        if self._is_paused:
            for lock in self._locks:
                lock.release()
        self._is_paused = False

    def switch(self, is_on: bool) -> None:
        """``resume`` or ``pause``."""
        if is_on:
            self.resume()
        else:
            self.pause()
