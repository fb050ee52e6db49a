import threading
import time

import pytest

from energy_callbacks.sensing.time_limit import within


def test_answer() -> None:
    """The answer comes through, and was found on another thread."""
    assert within(5.0, threading.get_ident, "who") != threading.get_ident()
    assert within(5.0, lambda: None, "nothing") is None


def test_error() -> None:
    """What the call raises is raised where it was asked."""
    with pytest.raises(ZeroDivisionError):
        within(5.0, lambda: 1 // 0, "division")


def test_silence() -> None:
    """A call that hangs is left while it hangs, after the time that it had; it holds up no exit."""
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
    """While a call hangs the next of its name is given up at once; after it ended it is made."""
    release = threading.Event()
    with pytest.raises(TimeoutError):
        within(0.1, release.wait, "twice")
    with pytest.raises(TimeoutError, match="an earlier call has no answer yet"):
        within(60.0, threading.get_ident, "twice")
    release.set()
    for thread in threading.enumerate():
        if thread.name == "energy_callbacks twice":
            thread.join()
    assert within(5.0, threading.get_ident, "twice")
