"""A clock whose jobs can be held up: a running meter of which no thread does anything."""

import threading
from collections.abc import Callable

from energy_callbacks.sensing.clock import Periodic, SystemClock


class PausableClock(SystemClock):
    """The real clock; between ``pause`` and ``resume`` no job begins a turn.

    Starting and stopping a meter for each half second would cost more than what is measured. A
    paused thread waits for a lock and takes no processor time. What was due in the pause is done
    at once when it ends, so rounds between pauses have a little more to do than a training has.
    """

    def __init__(self) -> None:
        self._locks: list[threading.Lock] = []
        self._is_paused = False

    def every(self, interval_s: float, job: Callable[[], float | None], name: str) -> Periodic:
        """See ``Clock``."""
        lock = threading.Lock()
        self._locks.append(lock)

        def turn() -> float | None:
            with lock:
                return job()

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
