"""The states of a meter and every transition between them, with a fake attempt."""

import atexit
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from energy_callbacks.accounting.attempt import ActiveAttempt
from energy_callbacks.accounting.lifecycle import Lifecycle, State
from energy_callbacks.accounting.profilers import Profilers
from energy_callbacks.core import forks


class Call:
    """A call that trains, until ``is_over``."""

    is_over = False

    def is_under_way(self) -> bool:
        return not self.is_over


@dataclass
class FakeAttempt:
    """An attempt that only records its calls; ``while_ending`` is called while it ends."""

    call: Call | None = field(default_factory=Call)
    heard: list[Any] = field(default_factory=list)
    ends_itself: bool = True
    while_ending: Callable[[], object] = lambda: None

    def end(self, error: BaseException | None) -> None:
        self.heard.append(("end", error))
        self.while_ending()

    def end_left(self, *, on_own_thread: bool) -> bool:
        self.heard.append(("end_left", on_own_thread))
        self.while_ending()
        return self.ends_itself

    def abandon(self) -> None:
        self.heard.append("abandon")

    def wait_for_journal(self, timeout_s: float) -> None:
        self.heard.append("wait_for_journal")


class FakeProfiler:
    """A profiler that records its end among the calls of the attempt."""

    def __init__(self, heard: list[Any]) -> None:
        self._heard = heard

    def start(self, meter: ActiveAttempt) -> None: ...

    def mark(self, name: str, t_s: float) -> None: ...

    def step(self, t_s: float) -> None: ...

    def stop(self) -> None:
        self._heard.append("profiler")


class Bench:
    """A lifecycle, its newest attempt, and the attempts that ended without ``stop``."""

    def __init__(self) -> None:
        self.life = Lifecycle()
        self.left: list[Any] = []
        self.attempt = FakeAttempt()

    def begin(self, *, with_profiler: bool = False) -> None:
        self.attempt = FakeAttempt()
        attempt = cast("ActiveAttempt", self.attempt)
        profilers = Profilers([FakeProfiler(self.attempt.heard)] if with_profiler else [])
        self.life.begin(attempt, profilers, self.left.append)
        profilers.start(attempt)

    def in_state(self, state: State) -> None:
        if state != "new":
            self.begin()
        if state == "ended":
            self.life.stop()
        if state == "failed":
            self.life.abandon("a bug")
        assert self.life.state == state


@pytest.fixture
def handlers(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The handlers for the exit of the interpreter, as far as the test has registered any."""
    found: list[Any] = []

    def unregister(handler: Any) -> None:
        found[:] = [one for one in found if one != handler]

    monkeypatch.setattr(atexit, "register", found.append)
    monkeypatch.setattr(atexit, "unregister", unregister)
    return found


@pytest.fixture
def bench(handlers: list[Any]) -> Bench:
    """A new one, whose handler is not registered with the interpreter."""
    assert handlers == []
    return Bench()


STATES: tuple[State, ...] = ("new", "running", "ended", "failed")


@pytest.mark.parametrize("state", ["new", "ended", "failed"])
def test_an_attempt_begins_in_every_state_but_running(bench: Bench, state: State) -> None:
    """Afterwards it is running, and the newest."""
    bench.in_state(state)
    bench.begin()
    assert bench.life.state == "running"
    assert bench.life.running is bench.life.own is cast("ActiveAttempt", bench.attempt)


def test_a_second_attempt_beside_a_running_one_is_refused(bench: Bench) -> None:
    """The first one continues."""
    bench.begin()
    first = bench.life.running
    with pytest.raises(RuntimeError, match="running already"):
        bench.begin()
    assert bench.life.running is first


def test_stop_ends_with_the_error_that_it_is_given(bench: Bench) -> None:
    """The attempt remains the newest one."""
    bench.begin()
    error = ValueError("no")
    bench.life.stop(error)
    assert (bench.life.state, bench.life.running) == ("ended", None)
    assert bench.life.own is cast("ActiveAttempt", bench.attempt)
    assert bench.attempt.heard == [("end", error)]
    assert bench.left == []


@pytest.mark.parametrize("state", ["new", "ended", "failed"])
@pytest.mark.parametrize(
    "ending", [Lifecycle.stop, Lifecycle.end_if_left, Lifecycle.end_left, Lifecycle.exit]
)
def test_an_ending_does_nothing_unless_an_attempt_is_running(
    bench: Bench, state: State, ending: Callable[[Lifecycle], None]
) -> None:
    """The state and the attempt stay as they are."""
    bench.in_state(state)
    before = list(bench.attempt.heard)
    ending(bench.life)
    assert bench.life.state == state
    assert [one for one in bench.attempt.heard if one != "wait_for_journal"] == before
    assert bench.left == []


def test_an_attempt_goes_on_while_its_call_does(bench: Bench) -> None:
    """It ends when the call is over, and is reported."""
    bench.begin()
    bench.life.end_if_left()
    assert bench.life.state == "running"
    assert bench.attempt.call is not None
    bench.attempt.call.is_over = True
    bench.life.end_if_left()
    assert bench.life.state == "ended"
    assert bench.attempt.heard == [("end_left", False)]
    assert bench.left == [bench.attempt]


def test_an_attempt_without_a_call_is_never_left(bench: Bench) -> None:
    """A plain loop ends by ``stop`` or at exit only."""
    bench.begin()
    bench.attempt.call = None
    bench.life.end_if_left()
    assert bench.life.state == "running"
    assert bench.attempt.heard == []


@pytest.mark.parametrize("on_own_thread", [False, True])
def test_an_attempt_that_is_left_ends_and_is_reported(bench: Bench, on_own_thread: bool) -> None:
    """On the training thread as well as on the journal's thread."""
    bench.begin()
    bench.life.end_left(on_own_thread=on_own_thread)
    assert (bench.life.state, bench.life.running) == ("ended", None)
    assert bench.attempt.heard == [("end_left", on_own_thread)]
    assert bench.left == [bench.attempt]


def test_the_journals_thread_gives_way_to_whoever_is_ending_it(bench: Bench) -> None:
    """An attempt that another thread is ending is still running."""
    bench.begin()
    bench.attempt.ends_itself = False
    bench.life.end_left(on_own_thread=True)
    assert bench.life.state == "running"
    assert bench.attempt.heard == [("end_left", True)]
    assert bench.left == []


def test_at_exit_what_is_running_ends_and_its_journal_is_waited_for(bench: Bench) -> None:
    """In this order, with a fake attempt."""
    bench.begin()
    bench.life.exit()
    assert bench.life.state == "ended"
    assert bench.attempt.heard == [("end_left", False), "wait_for_journal"]


@pytest.mark.parametrize("state", STATES)
def test_abandoning_fails_in_every_state(bench: Bench, state: State) -> None:
    """Only a running attempt is abandoned."""
    bench.in_state(state)
    before = len(bench.attempt.heard)
    bench.life.abandon("a bug")
    assert (bench.life.state, bench.life.running) == ("failed", None)
    assert bench.attempt.heard[before:] == (["abandon"] if state == "running" else [])


ENDINGS: dict[str, Callable[[Lifecycle], object]] = {
    "stop": Lifecycle.stop,
    "end_left": Lifecycle.end_left,
    "exit": Lifecycle.exit,
    "abandon": lambda life: life.abandon("a bug"),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_profilers_stop_before_the_attempt_ends(bench: Bench, ending: str) -> None:
    """So they can still ask it for energies, for each way to end."""
    bench.begin(with_profiler=True)
    ENDINGS[ending](bench.life)
    assert bench.attempt.heard[0] == "profiler"
    assert bench.attempt.heard.count("profiler") == 1
    assert len(bench.attempt.heard) > 1


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_handler_at_exit_is_registered_while_an_attempt_is_running(
    bench: Bench, handlers: list[Any], ending: str
) -> None:
    """For each way to end, nothing stays registered with the interpreter."""
    bench.begin()
    assert handlers == [bench.life.exit]
    ENDINGS[ending](bench.life)
    assert handlers == []


def test_an_attempt_may_begin_while_the_one_before_is_reported(
    bench: Bench, handlers: list[Any]
) -> None:
    """The new attempt is running, and its handler stays registered."""
    bench.life.begin(
        cast("ActiveAttempt", bench.attempt), Profilers(()), lambda attempt: bench.begin()
    )
    bench.life.end_left()
    assert bench.life.state == "running"
    assert bench.life.running is cast("ActiveAttempt", bench.attempt)
    assert bench.life.exit in handlers


@pytest.mark.parametrize("ending", ["stop", "end_left"])
def test_an_attempt_that_is_abandoned_while_it_ends_has_failed(bench: Bench, ending: str) -> None:
    """The end in progress does not change the state again."""
    bench.begin()
    bench.attempt.while_ending = lambda: bench.life.abandon("a bug")
    ENDINGS[ending](bench.life)
    assert (bench.life.state, bench.life.running) == ("failed", None)


def test_a_report_that_fails_is_a_failure_and_not_an_exception(bench: Bench) -> None:
    """An exception during the end of an attempt ends measuring."""
    bench.life.begin(cast("ActiveAttempt", bench.attempt), Profilers(()), lambda attempt: 1 / 0)
    bench.life.end_left()
    assert bench.life.state == "failed"


def test_in_a_forked_child_nothing_is_running(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parent's attempt is left alone; the child may begin its own."""
    bench.begin()
    parents = bench.attempt
    monkeypatch.setattr(forks, "generation", forks.generation + 1)
    assert bench.life.running is None
    assert bench.life.own is None
    for ending in (Lifecycle.stop, Lifecycle.end_left, Lifecycle.end_if_left, Lifecycle.exit):
        ending(bench.life)
    assert parents.heard == []
    bench.begin()
    assert bench.life.running is cast("ActiveAttempt", bench.attempt)
