"""Held signals: which ones arrived, and which are passed on."""

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Final

import pytest

from energy_callbacks.core.signals import SignalHold


@pytest.fixture
def hold() -> Iterator[SignalHold]:
    """SIGUSR1 and SIGUSR2 are held; this process ignores SIGUSR2."""
    before = signal.signal(signal.SIGUSR2, signal.SIG_IGN), signal.signal(signal.SIGUSR1, _default)
    one = SignalHold((signal.SIGUSR1, signal.SIGUSR2))
    with one.held():
        yield one
    for number, handler in zip((signal.SIGUSR2, signal.SIGUSR1), before, strict=True):
        signal.signal(number, handler)


def _default(*_: object) -> None:
    raise AssertionError("the signal was not held")


def test_a_signal_of_another_process_is_passed_on(hold: SignalHold) -> None:
    """It has reached this process alone."""
    signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
    assert hold.wait(60.0) == [signal.SIGUSR1]
    assert hold.first == signal.SIGUSR1


@pytest.mark.parametrize(("si_code", "is_passed_on"), [(0, True), (-6, True), (128, False)])
def test_only_signals_that_a_process_sent_are_passed_on(
    hold: SignalHold, monkeypatch: pytest.MonkeyPatch, si_code: int, is_passed_on: bool
) -> None:
    """Those of ``kill``, also from outside of a container, or of ``tgkill``; not the kernel's."""
    found = SimpleNamespace(si_signo=signal.SIGUSR1, si_code=si_code, si_pid=0)
    monkeypatch.setattr(signal, "sigtimedwait", lambda *_: found)
    assert hold.wait(0.1) == [signal.SIGUSR1] * is_passed_on
    assert hold.first == signal.SIGUSR1


def test_an_ignored_signal_is_passed_on_and_not_recorded(hold: SignalHold) -> None:
    """A child process may handle what this process ignores."""
    signal.pthread_kill(threading.get_ident(), signal.SIGUSR2)
    assert hold.wait(60.0) == [signal.SIGUSR2]
    assert hold.first is None


def test_no_signal_arrives(hold: SignalHold) -> None:
    """The wait ends after its time."""
    assert hold.wait(0.0) == []


_CHILD: Final = """
import os, signal, time
from energy_callbacks.core.signals import SignalHold
hold = SignalHold((signal.SIGUSR1,))
with hold.held():
    pid = os.posix_spawnp("true", ["true"], os.environ)
    begun_s = time.monotonic()
    assert hold.wait(60.0) == []
    assert time.monotonic() - begun_s < 30.0
    assert os.waitpid(pid, 0) == (pid, 0)
"""


def test_a_child_that_ends_ends_the_wait() -> None:
    """SIGCHLD is not passed on. A process with one thread, or another thread may receive it."""
    subprocess.run([sys.executable, "-c", _CHILD], check=True, timeout=120.0)


def test_a_signal_while_a_program_starts_is_passed_on(hold: SignalHold) -> None:
    """The program inherits the original mask, and the signal is not lost."""
    with hold.as_before():
        status = subprocess.check_output(["grep", "SigBlk", "/proc/self/status"], text=True)
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
    assert not int(status.split()[1], 16) & 1 << (signal.SIGUSR1 - 1)
    assert (hold.wait(0.0), hold.first) == ([signal.SIGUSR1], signal.SIGUSR1)
