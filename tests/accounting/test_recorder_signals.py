"""Changes of phase wait neither for a lock of their own thread nor for the journal's thread."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest

from energy_callbacks.accounting import phases, recorder
from energy_callbacks.testing import FakeClock
from tests.accounting.books import START_S, Books, wave

SOURCES: Final = (recorder.__file__, phases.__file__)
HANGS_S: Final = 30.0
# ``trained`` has a line for each window that a handler has named.
MOST_LINES: Final = 40

Call = Callable[[Books], object]


def enter(books: Books) -> None:
    """Begin a phase."""
    books.enter("validation")


def leave(books: Books) -> None:
    """End the open phase."""
    books.leave("train")


def window(books: Books) -> None:
    """Name a past window."""
    now_s = books.clock.monotonic_s()
    books.recorder.window("data", now_s - 0.5, now_s)


def leave_all(books: Books) -> None:
    """End all phases, as at the end of an attempt."""
    books.recorder.leave_all(books.clock.monotonic_s())


def trained(books: Books) -> None:
    """Ask for the time in phase ``train``, as for a row of figures."""
    now_s = books.clock.monotonic_s()
    books.recorder.trained(now_s - 0.5, now_s)


CALLS: Final[tuple[Call, ...]] = (enter, leave, window, leave_all, trained)


def save_checkpoint(books: Books) -> None:
    """What a handler of SIGTERM does that saves a checkpoint in a phase of its own."""
    books.clock.sleep(0.25)
    now_s = books.clock.monotonic_s()
    books.enter("checkpoint")
    books.recorder.window("gather", now_s - 0.1, now_s)
    trained(books)
    books.leave("checkpoint")


@pytest.fixture
def books(tmp_path: Path) -> Books:
    """A training that runs for 3 s."""
    clock = FakeClock(start_s=START_S)
    books = Books(tmp_path, wave(clock), clock=clock)
    books.enter("train")
    clock.advance(3.0)
    return books


@pytest.fixture
def at_line(books: Books) -> Iterator[Callable[[Call, int], bool]]:
    """Makes a call and raises a signal before its nth line; returns whether there is one."""

    def hangs(*_: object) -> None:
        raise TimeoutError("the call waits for a lock that its own thread holds")

    def run(call: Call, number: int) -> bool:
        left = number

        def trace(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal left
            if frame.f_code.co_filename not in SOURCES:
                return None
            if event == "line":
                left -= 1
                if left == 0:
                    sys.settrace(None)
                    signal.raise_signal(signal.SIGUSR1)
            return trace

        before, settrace = sys.gettrace(), sys.settrace
        signal.setitimer(signal.ITIMER_REAL, HANGS_S)
        settrace(trace)
        try:
            call(books)
        finally:
            settrace(before)
            signal.setitimer(signal.ITIMER_REAL, 0.0)
        return left <= 0

    old = signal.signal(signal.SIGUSR1, lambda *_: save_checkpoint(books))
    alarm = signal.signal(signal.SIGALRM, hangs)
    yield run
    signal.signal(signal.SIGALRM, alarm)
    signal.signal(signal.SIGUSR1, old)


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
def test_a_signal_at_any_line_of_a_change_waits_for_nothing(
    books: Books, at_line: Callable[[Call, int], bool], call: Call
) -> None:
    """A handler changes the phase in the middle of each call; the journal has all spans."""
    number = 0
    while (number := number + 1) <= MOST_LINES and at_line(call, number):
        books.recorder.leave_all(books.clock.monotonic_s())
        books.enter("train")
        books.clock.advance(0.6)
    assert number > 3, "lines at which a signal was raised"
    books.finish()
    spans = books.of("span")
    assert [s["start_s"] for s in spans[1:]] == [s["end_s"] for s in spans[:-1]]
    assert all(span["end_s"] >= span["start_s"] for span in spans)
    assert sum(span["phase"] == "checkpoint" for span in spans) == number - 1
    assert sum(window["name"] == "gather" for window in books.of("window")) == number - 1
    shares = [s["energy"]["gpu0"]["energy_j"] for s in spans if s["energy"]]
    assert sum(shares) == pytest.approx(books.of("totals")[0]["energy"]["gpu0"]["energy_j"])
    assert all(a["t_s"] <= b["t_s"] for a, b in pairwise(books.of("series")))


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
def test_a_change_does_not_wait_for_the_journals_thread(
    books: Books, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    """While the journal's thread is in the middle of taking a span, the training thread goes on."""
    inside, release = threading.Event(), threading.Event()
    add = books.recorder._by_phase.add

    def slow(span: phases.PhaseSpan) -> None:
        inside.set()
        release.wait(60.0)
        add(span)

    books.leave("train")
    books.enter("train")
    monkeypatch.setattr(books.recorder._by_phase, "add", slow)
    journal = threading.Thread(target=books.recorder.update)
    journal.start()
    assert inside.wait(60.0)
    training = threading.Thread(target=call, args=(books,), daemon=True)
    training.start()
    training.join(HANGS_S)
    is_done = not training.is_alive()
    release.set()
    journal.join(60.0)
    assert is_done
