"""Who waits for the attempts that have not ended completely (``test_lifecycle`` adds them)."""

import atexit
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from energy_callbacks.accounting import open_attempts
from energy_callbacks.accounting.attempt import ActiveAttempt
from energy_callbacks.core import forks


class FakeAttempt:
    """Records who waited for it."""

    def __init__(self, run_folder: Path = Path("run"), *, is_ending: bool = True) -> None:
        self.run_folder = run_folder
        self.is_ending = is_ending
        self.heard: list[object] = []
        self.thread = self

    def wait_until_over(self) -> None:
        self.heard.append("journal")

    def wait_for_journal(self, timeout_s: float) -> None:
        self.heard.append(timeout_s)


@pytest.fixture(autouse=True)
def handlers(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], object]]:
    """Return the exit handlers in the order of their registration; no attempt is open."""
    registered: list[Callable[[], object]] = []

    def unregister(handler: Callable[[], object]) -> None:
        registered[:] = [one for one in registered if one != handler]

    monkeypatch.setattr(open_attempts, "_open", {})
    monkeypatch.setattr(atexit, "register", registered.append)
    monkeypatch.setattr(atexit, "unregister", unregister)
    return registered


def add(attempt: FakeAttempt, at_exit: Callable[[], object] = lambda: None) -> ActiveAttempt:
    """Add a fake attempt."""
    added = cast("ActiveAttempt", attempt)
    open_attempts.add(added, at_exit)
    return added


def test_attempts_end_before_the_libraries_that_were_imported_first(handlers: list[Any]) -> None:
    """Handlers run in reverse order. However many attempts there are, there is one handler."""
    add(FakeAttempt())
    handlers.append("of a library")
    add(FakeAttempt())
    assert handlers == ["of a library", open_attempts.close_all]


def test_all_attempts_end_at_exit_in_the_order_of_their_starts() -> None:
    """Those that were removed do not."""
    ended: list[str] = []
    for name in ("first", "second", "removed"):
        attempt = add(FakeAttempt(), lambda name=name: ended.append(name))  # type: ignore[misc]
    open_attempts.remove(attempt)
    open_attempts.remove(attempt)
    open_attempts.close_all()
    assert ended == ["first", "second"]


def test_an_attempt_may_be_removed_while_all_are_read() -> None:
    """The journal's thread of an attempt removes it at any time."""

    class Removing(FakeAttempt):
        others: list[ActiveAttempt] = []  # noqa: RUF012 - set below

        def __hash__(self) -> int:  # called while the attempts are read
            while self.others:
                open_attempts.remove(self.others.pop())
            return id(self)

    ended: list[str] = []
    add(Removing(), lambda: ended.append("first"))
    second = add(FakeAttempt(), lambda: ended.append("second"))
    Removing.others = [second]
    open_attempts.close_all()
    assert ended == ["first", "second"]


def test_reports_are_waited_for_longer_than_journals(tmp_path: Path) -> None:
    """Only for attempts that are ending in this folder."""
    here, running = FakeAttempt(tmp_path / "a"), FakeAttempt(tmp_path / "a", is_ending=False)
    elsewhere = FakeAttempt(tmp_path / "b")
    for attempt in (here, running, elsewhere):
        add(attempt)
    open_attempts.wait_for_journals(tmp_path / "a")
    open_attempts.wait_for_reports(tmp_path / "a")
    assert here.heard == ["journal", open_attempts.REPORT_S]
    assert running.heard == elsewhere.heard == []


def test_a_forked_child_does_not_wait_for_attempts_of_its_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their threads do not run in the child."""
    attempt = FakeAttempt(tmp_path)
    add(attempt)
    monkeypatch.setattr(forks, "generation", forks.generation + 1)
    open_attempts.wait_for_journals(tmp_path)
    open_attempts.wait_for_reports(tmp_path)
    assert attempt.heard == []


def test_an_interrupt_at_exit_names_the_folders_without_a_report(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Each folder once; not those of attempts that had ended before. The exit goes on."""

    def interrupted() -> None:
        open_attempts.remove(ended)
        raise KeyboardInterrupt

    ended = add(FakeAttempt(Path("ended")))
    add(FakeAttempt(Path("run")), interrupted)
    add(FakeAttempt(Path("run")))
    open_attempts.close_all()
    (message,) = caplog.messages
    assert message.startswith("no energy report in run: interrupted by Ctrl-C")
    assert message.endswith("energy-callbacks report run")
