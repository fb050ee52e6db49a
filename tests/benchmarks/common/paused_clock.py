"""A clock whose jobs can be paused: a running meter whose threads do nothing."""

import threading
import time
from collections.abc import Callable
from typing import Final

from energy_callbacks.sensing.clock import Periodic, SystemClock

_LOOK_S: Final = 0.0005
_LONGEST_S: Final = 0.25


class PausableClock(SystemClock):
    """The real clock; between ``pause`` and ``resume`` no job begins a turn.

    Starting and stopping a meter for each round would cost more than the effect to measure. A
    paused thread waits for a lock and takes no processor time. ``catch_up`` lets turns that fell
    due in a pause run while nothing is timed: later rounds have as many turns as a training does,
    and each has as much to read.

    Attributes:
        turns: number of turns that have begun.
    """

    def __init__(self) -> None:
        self._locks: list[threading.Lock] = []
        self._counting = threading.Lock()
        self._due = 0
        self._is_paused = False
        self.turns = 0

    def every(self, interval_s: float, job: Callable[[], float | None], name: str) -> Periodic:
        """See ``Clock``."""
        lock = threading.Lock()
        self._locks.append(lock)

        def turn() -> float | None:
            with self._counting:
                self._due += 1
            with lock:
                with self._counting:
                    self._due -= 1
                    self.turns += 1
                return job()

        return super().every(interval_s, turn, name)

    @property
    def is_busy(self) -> bool:
        """Whether a turn is running, while jobs are not paused."""
        return any(lock.locked() for lock in self._locks)

    def is_due(self) -> bool:
        """Whether a turn waits to begin."""
        return self._due > 0

    def pause(self) -> None:
        """Pause all jobs; returns when the running turns have ended."""
        if not self._is_paused:
            for lock in self._locks:
                lock.acquire()
        self._is_paused = True

    def resume(self) -> None:
        """Let jobs continue."""
        if self._is_paused:
            for lock in self._locks:
                lock.release()
        self._is_paused = False

    def catch_up(self) -> None:
        """In a pause, let turns that are due run, and those that fall due meanwhile."""
        if not self._due:
            return
        self.resume()
        end_s = time.monotonic() + _LONGEST_S
        while (self._due or self.is_busy) and time.monotonic() < end_s:
            time.sleep(_LOOK_S)
        self.pause()

    def switch(self, is_on: bool) -> None:
        """Before a round, call ``resume`` or ``pause``, with nothing left over from a pause."""
        self.catch_up()
        if is_on:
            self.resume()
        else:
            self.pause()
