"""Pauses of background threads."""

import math
import threading
import time

import numpy as np
import pytest

from energy_callbacks.core import yielding
from energy_callbacks.sensing.clock import SystemClock
from energy_callbacks.sensing.timeline import Timeline


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses of this thread, which has no other work and uses a clock that stands still."""
    made: list[float] = []
    monkeypatch.setattr(yielding, "time", Time(made))
    yield made
    yielding.leave()


class Time:
    """A clock that the test sets; it notes pauses."""

    def __init__(self, pauses: list[float]) -> None:
        self._pauses = pauses
        self.now_s = 0.0

    def monotonic(self) -> float:
        """Return the time."""
        return self.now_s

    def sleep(self, duration_s: float) -> None:
        """Note a pause."""
        self._pauses.append(duration_s)


def pass_ms(ms: float) -> None:
    """Let time pass."""
    yielding.time.now_s += ms / 1e3  # type: ignore[attr-defined]


def test_a_thread_pauses_when_it_has_run_for_a_piece(pauses: list[float]) -> None:
    """Short work is not interrupted; after a pause, the next piece begins."""
    yielding.begin()
    pass_ms(0.2)
    yielding.yield_if_due()
    assert pauses == []
    pass_ms(0.2)
    yielding.yield_if_due()
    assert len(pauses) == 1
    yielding.yield_if_due()
    assert len(pauses) == 1


def test_a_pause_really_sleeps(pauses: list[float]) -> None:
    """A sleep of 0 s often gives no other thread the interpreter."""
    yielding.pause()
    assert pauses[0] > 0.0


@pytest.mark.parametrize(("pause_ms", "piece_ms"), [(0.1, 0.25), (5.0, 0.25), (100.0, 5.0)])
def test_after_a_long_pause_the_next_piece_is_longer(
    pauses: list[float], monkeypatch: pytest.MonkeyPatch, pause_ms: float, piece_ms: float
) -> None:
    """If the training calls C functions that take 0.1 s, a beat with ten pauses takes no second."""
    monkeypatch.setattr(yielding, "_piece", yielding._Piece())
    monkeypatch.setattr(yielding.time, "sleep", lambda _: pass_ms(pause_ms))
    yielding.pause()
    monkeypatch.setattr(yielding, "pause", lambda: pauses.append(0.0))
    pass_ms(0.99 * piece_ms)
    yielding.yield_if_due()
    assert not pauses
    pass_ms(0.02 * piece_ms)
    yielding.yield_if_due()
    assert pauses


def test_the_training_thread_never_pauses(pauses: list[float]) -> None:
    """Without ``begin``, and after ``leave``, no work is interrupted."""
    pass_ms(1e6)
    yielding.yield_if_due()
    yielding.begin()
    yielding.leave()
    pass_ms(1e6)
    yielding.yield_if_due()
    assert pauses == []


def test_jobs_of_the_system_clock_pause() -> None:
    """On the thread of a periodic job, a piece of work has begun; elsewhere none has."""
    began_s: list[float] = []
    done = threading.Event()

    def job() -> None:
        began_s.append(yielding._piece.began_s)
        done.set()

    periodic = SystemClock().every(600.0, job, "energy_callbacks test")
    assert done.wait(60.0)
    periodic.ask_to_stop()
    assert periodic.wait(60.0)
    assert began_s[0] <= time.monotonic()
    assert yielding._piece.began_s == math.inf


@pytest.mark.parametrize(("count", "sizes"), [(0, [0]), (3, [3]), (7, [3, 3, 1])])
def test_pieces_are_the_whole(pauses: list[float], count: int, sizes: list[int]) -> None:
    """The parts are in order, and an array without elements has one part."""
    parts = list(yielding.pieces(np.arange(count), 3))
    assert [len(part) for part in parts] == sizes
    assert np.concatenate(parts).tolist() == list(range(count))


def test_no_pause_while_the_timeline_is_locked(pauses: list[float]) -> None:
    """The pause comes before the lock is taken: another thread could wait for the lock."""
    timeline = Timeline()
    locked: list[bool] = []

    def is_locked() -> None:
        lock = timeline._lock._lock
        if lock.acquire(blocking=False):
            lock.release()
            locked.append(False)

    def sleep(_: float) -> None:
        thread = threading.Thread(target=is_locked)
        thread.start()
        thread.join()

    yielding.time.sleep = sleep  # type: ignore[assignment]
    yielding.begin()
    pass_ms(1.0)
    timeline.settled_s(0.0)
    assert locked == [False]
