"""Signals that are held: which came, and whether others have them too."""

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from energy_callbacks.core.signals import Received, next_signal

HELD = {signal.SIGUSR1, signal.SIGCHLD}


@pytest.fixture(autouse=True)
def held() -> Iterator[None]:
    """This thread blocks them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, HELD)
    yield
    while signal.sigtimedwait(HELD, 0) is not None:
        pass
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_what_a_process_has_sent_is_for_this_one_alone() -> None:
    """Nobody else has heard of it."""
    signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
    assert next_signal(HELD, 60.0) == Received(signal.SIGUSR1, is_for_this_process=True)


def test_nothing_came() -> None:
    """After the time."""
    assert next_signal(HELD, 0.0) is None


def test_a_child_that_ends_ends_the_wait() -> None:
    """It is no signal to pass on."""
    pid = os.posix_spawnp("true", ["true"], os.environ)
    assert next_signal(HELD, 60.0) is None
    assert os.waitpid(pid, 0) == (pid, 0)
