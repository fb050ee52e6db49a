import threading
import time

import pytest

from energy_callbacks.sensing.time_limit import within
from tests.core.waiting import until_ended


def test_answer() -> None:
    """The result of a call on another thread is returned."""
    assert within(60.0, threading.get_ident, "who") != threading.get_ident()
    assert within(60.0, lambda: None, "nothing") is None


def test_error() -> None:
    """An exception of the call is raised in the calling thread."""
    with pytest.raises(ZeroDivisionError):
        within(60.0, lambda: 1 // 0, "division")


def test_silence() -> None:
    """A call that hangs is abandoned after its time limit, and does not delay the exit."""
    release = threading.Event()
    start_s = time.monotonic()
    with pytest.raises(TimeoutError, match=r"driver: no answer within 0\.1 s"):
        within(0.1, release.wait, "driver")
    waited_s = time.monotonic() - start_s
    (thread,) = (one for one in threading.enumerate() if one.name == "energy_callbacks driver")
    release.set()

    assert waited_s >= 0.1
    assert thread.daemon


def test_nobody_waits_twice_for_the_same_silence() -> None:
    """While a call hangs, other calls of its name fail immediately."""
    release = threading.Event()
    with pytest.raises(TimeoutError):
        within(0.1, release.wait, "twice")
    with pytest.raises(TimeoutError, match="an earlier call has no answer yet"):
        within(60.0, threading.get_ident, "twice")
    release.set()
    until_ended("energy_callbacks twice")
    assert within(60.0, threading.get_ident, "twice")
