"""Tests of calls on the main thread that other threads request."""

import threading
import time

import pytest

from energy_callbacks.profiling.common.main_thread import on_thread

MAIN = threading.main_thread().ident or 0


def elsewhere(thread, job):
    """Request a call on another thread; returns the answer after the main thread could serve it."""
    said = []
    other = threading.Thread(target=lambda: said.append(on_thread(thread, job)))
    other.start()
    other.join()
    end_s = time.monotonic() + 0.05
    while time.monotonic() < end_s:
        pass
    return said[0]


def test_at_once_on_its_own_thread():
    """The call is direct; its exceptions are raised."""
    found = []
    assert on_thread(threading.get_ident(), lambda: found.append(1))
    assert found == [1]
    with pytest.raises(KeyError):
        on_thread(threading.get_ident(), lambda: {}["missing"])


def test_soon_on_the_main_thread():
    """The call is made once, on the main thread."""
    found = []
    assert elsewhere(MAIN, lambda: found.append(threading.get_ident()))
    assert found == [MAIN]


def test_an_error_of_a_call_does_not_reach_the_program(caplog):
    """A warning is logged."""
    assert elsewhere(MAIN, lambda: {}["missing"])
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_no_other_thread_can_be_asked():
    """Other threads than the main one are refused."""
    found = []
    stay = threading.Event()
    other = threading.Thread(target=stay.wait)
    other.start()
    assert not on_thread(other.ident, lambda: found.append(1))
    stay.set()
    other.join()
    assert found == []
