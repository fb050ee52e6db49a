"""The states of a meter and every transition between them, with a fake attempt."""

import atexit
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from energy_callbacks.accounting import open_attempts
from energy_callbacks.accounting.attempt import ActiveAttempt
from energy_callbacks.accounting.lifecycle import Lifecycle, State
from energy_callbacks.accounting.profilers import Profilers
from energy_callbacks.core import forks


class Call:
    """A call that trains, until ``is_over``."""

    is_over = False

    def is_under_way(self) -> bool:
        return not self.is_over


@dataclass(eq=False)
class FakeAttempt:
    """An attempt, also its thread, that only records calls; ``while_ending`` runs at its end."""

    call: Call | None = field(default_factory=Call)
    heard: list[Any] = field(default_factory=list)
    closes: bool = True
    while_ending: Callable[[], object] = lambda: None
    run_folder: Path = Path("run")
    is_ending: bool = False
    is_let_go: bool = False
    on_report: dict[int, Callable[..., object]] = field(default_factory=dict)
    ends_with_call: bool = True

    def end_call_if_left(self) -> None:
        self.heard.append("end_call")

    @property
    def thread(self) -> "FakeAttempt":
        return self

    def ask_to_end(self, error: BaseException | None) -> None:
        self.is_ending = True
        self.heard.append(("end", error))
        self.while_ending()

    def ask_to_end_left(self) -> None:
        self.is_ending = True
        self.heard.append("end_left")
        self.while_ending()

    def let_go(self, then: Callable[[], None]) -> None:
        self.is_let_go = True
        self.heard.append("let_go")
        if self.closes:
            then()

    def wait_until_over(self) -> bool:
        self.heard.append("wait")
        return self.closes

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
            self.life._abandon("a bug")
        assert self.life.state == state


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A new one, whose attempts are not registered with the interpreter."""
    monkeypatch.setattr(open_attempts, "_open", {})
    monkeypatch.setattr(atexit, "register", lambda handler: None)
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
    with pytest.raises(RuntimeError, match="already measuring"):
        bench.begin()
    assert bench.life.running is first


def test_stop_ends_with_the_error_that_it_is_given(bench: Bench) -> None:
    """The attempt remains the newest one."""
    bench.begin()
    error = ValueError("no")
    bench.life.stop(error)
    assert (bench.life.state, bench.life.running) == ("ended", None)
    assert bench.life.own is cast("ActiveAttempt", bench.attempt)
    assert bench.attempt.heard == [("end", error), "let_go", "wait", "wait_for_journal"]
    assert bench.left == []


def test_an_attempt_that_is_asked_to_end_has_ended(bench: Bench) -> None:
    """Nothing waits, and the journal remains open until ``close``."""
    bench.begin()
    attempt = bench.life.ask_to_end()
    assert (bench.life.state, bench.life.running) == ("ended", None)
    assert bench.attempt.heard == [("end", None)]
    assert attempt is not None
    done: list[bool] = []
    bench.life.close(attempt, lambda: done.append(True))
    assert done == [True]
    assert bench.attempt.heard == [("end", None), "let_go"]


def test_stop_waits_for_an_attempt_that_is_ending(bench: Bench) -> None:
    """For example, in a signal handler that interrupts the end."""
    bench.begin()
    bench.life.ask_to_end()
    bench.life.stop()
    assert bench.attempt.heard == [("end", None), "wait"]


def test_a_journal_that_hangs_is_a_warning(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """``stop`` returns."""
    bench.begin()
    bench.attempt.closes = False
    bench.life.stop()
    assert "cannot be written" in caplog.text


@pytest.mark.parametrize("state", ["new", "ended", "failed"])
@pytest.mark.parametrize(
    "ending", [Lifecycle.stop, Lifecycle.ask_to_end, Lifecycle.end_if_left, Lifecycle.end_left]
)
def test_an_ending_does_nothing_unless_an_attempt_is_running(
    bench: Bench, state: State, ending: Callable[[Lifecycle], object]
) -> None:
    """The state and the attempt stay as they are."""
    bench.in_state(state)
    before = list(bench.attempt.heard)
    ending(bench.life)
    assert bench.life.state == state
    assert [one for one in bench.attempt.heard[len(before) :] if one != "wait"] == []
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
    assert bench.attempt.heard == ["end_left", "let_go", "wait"]
    assert bench.left == [bench.attempt]


@pytest.mark.parametrize("on_own_thread", [False, True])
def test_an_attempt_of_the_user_goes_on_after_a_call(bench: Bench, on_own_thread: bool) -> None:
    """Only the phases of the call end; at exit, the attempt ends, too."""
    bench.begin()
    bench.attempt.ends_with_call = False
    bench.life.end_if_left(on_own_thread=on_own_thread)
    assert bench.attempt.heard == []
    assert bench.attempt.call is not None
    bench.attempt.call.is_over = True
    bench.life.end_if_left(on_own_thread=on_own_thread)
    assert bench.life.state == "running"
    assert bench.attempt.heard == ["end_call"]
    open_attempts.close_all()
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
    assert ("wait" in bench.attempt.heard) != on_own_thread, "a thread cannot wait for itself"
    assert bench.left == [bench.attempt]


def test_at_exit_what_is_running_ends_and_its_report_is_waited_for(bench: Bench) -> None:
    """In this order, with a fake attempt."""
    bench.begin()
    open_attempts.close_all()
    assert bench.life.state == "ended"
    assert bench.attempt.heard[:2] == ["end_left", "let_go"]
    assert bench.attempt.heard[-1] == "wait_for_journal"
    assert bench.left == [bench.attempt]


def test_at_exit_an_attempt_that_was_not_closed_is_closed(bench: Bench) -> None:
    """For example, if a signal handler raised an exception in between."""
    bench.begin()
    bench.life.ask_to_end()
    open_attempts.close_all()
    assert bench.attempt.heard[:2] == [("end", None), "let_go"]
    assert bench.left == [bench.attempt]


def test_at_exit_a_journal_that_hangs_is_not_waited_for_again(bench: Bench) -> None:
    """Its report cannot be made."""
    bench.begin()
    bench.attempt.closes = False
    open_attempts.close_all()
    assert "wait_for_journal" not in bench.attempt.heard


@pytest.mark.parametrize("closes", [False, True])
def test_at_exit_a_report_that_someone_waits_for_is_not_lost_silently(
    bench: Bench, caplog: pytest.LogCaptureFixture, closes: bool
) -> None:
    """A warning says that it may be missing in the run of a tracker."""
    bench.begin()
    bench.attempt.closes = closes
    bench.attempt.on_report[0] = print
    open_attempts.close_all()
    assert ("experiment tracker" in caplog.text) != closes


@pytest.mark.parametrize("state", STATES)
def test_abandoning_fails_in_every_state(bench: Bench, state: State) -> None:
    """Only a running attempt is abandoned."""
    bench.in_state(state)
    before = len(bench.attempt.heard)
    bench.life._abandon("a bug")
    assert (bench.life.state, bench.life.running) == ("failed", None)
    assert bench.attempt.heard[before:] == (["abandon"] if state == "running" else [])


ENDINGS: dict[str, Callable[[Lifecycle], object]] = {
    "stop": Lifecycle.stop,
    "end_left": Lifecycle.end_left,
    "exit": lambda life: open_attempts.close_all(),
    "abandon": lambda life: life._abandon("a bug"),
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
def test_an_attempt_is_open_until_its_journal_is_closed(bench: Bench, ending: str) -> None:
    """For each way to end, nothing stays registered."""
    bench.begin()
    assert list(open_attempts._open) == [bench.attempt]
    ENDINGS[ending](bench.life)
    assert not open_attempts._open


def test_an_attempt_may_begin_while_the_one_before_is_reported(bench: Bench) -> None:
    """The new attempt is running and open."""
    bench.life.begin(
        cast("ActiveAttempt", bench.attempt), Profilers(()), lambda attempt: bench.begin()
    )
    bench.life.end_left()
    assert bench.life.state == "running"
    assert bench.life.running is cast("ActiveAttempt", bench.attempt)
    assert list(open_attempts._open) == [bench.attempt]


@pytest.mark.parametrize("ending", ["stop", "end_left"])
def test_an_attempt_that_is_abandoned_while_it_ends_has_failed(bench: Bench, ending: str) -> None:
    """The end in progress does not change the state again."""
    bench.begin()
    bench.attempt.while_ending = lambda: bench.life._abandon("a bug")
    ENDINGS[ending](bench.life)
    assert (bench.life.state, bench.life.running) == ("failed", None)


def test_a_report_that_fails_is_a_warning_and_not_an_exception(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """An exception on the journal's thread ends nothing."""
    bench.life.begin(cast("ActiveAttempt", bench.attempt), Profilers(()), lambda attempt: 1 / 0)
    bench.life.end_left()
    assert bench.life.state == "ended"
    assert "no energy report in run" in caplog.text


def test_waiting_for_journals_waits_for_those_that_end_in_the_folder(
    bench: Bench, tmp_path: Path
) -> None:
    """A running attempt and other folders are not waited for."""
    bench.begin()
    bench.attempt.run_folder = tmp_path / "energy"
    open_attempts.wait_for_journals(tmp_path)
    assert bench.attempt.heard == []
    bench.life.ask_to_end()
    open_attempts.wait_for_journals(tmp_path / "other")
    assert "wait" not in bench.attempt.heard
    for place in (tmp_path, tmp_path / "energy", tmp_path / "energy" / "attempts"):
        bench.attempt.heard.clear()
        open_attempts.wait_for_journals(place)
        assert bench.attempt.heard == ["wait"]


def test_in_a_forked_child_nothing_is_running(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parent's attempt is left alone; the child may begin its own."""
    bench.begin()
    parents = bench.attempt
    monkeypatch.setattr(forks, "generation", forks.generation + 1)
    assert bench.life.running is None
    assert bench.life.own is None
    for ending in (Lifecycle.stop, Lifecycle.end_left, Lifecycle.end_if_left):
        ending(bench.life)
    open_attempts.close_all()
    assert parents.heard == []
    bench.begin()
    assert bench.life.running is cast("ActiveAttempt", bench.attempt)
