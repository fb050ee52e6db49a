"""A running call, found in one of its hooks and watched from other threads."""

import gc
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator

import pytest

from energy_callbacks.core.active_call import ActiveCall, find_callback_list

HERE = __name__.partition(".")[0]


class Handler:
    """Keeps callbacks and calls them, as frameworks do."""

    def __init__(self, *callbacks: Callable[[], object]) -> None:
        self.callbacks = list(callbacks)

    def fit(self) -> list[object]:
        """A training of one hook."""
        mine = "a local variable"
        assert mine
        return [callback() for callback in self.callbacks]

    def train(self) -> list[object]:
        """Another name around it."""
        return self.fit()


def find() -> ActiveCall | None:
    """What a hook does."""
    return ActiveCall.find("fit", package=HERE)


def test_a_call_is_under_way_until_it_returns() -> None:
    """The call is under way inside the hook, and not afterwards."""
    seen = []

    def hook() -> ActiveCall:
        call = find()
        assert call is not None
        seen.append(call.is_under_way())
        seen.append(call.local("mine"))
        return call

    (call,) = Handler(hook).fit()
    assert seen == [True, "a local variable"]
    assert not call.is_under_way()
    assert call.local("mine") is None


def test_another_call_of_the_same_function_is_another_call() -> None:
    """A second ``fit`` does not make the first call active again."""
    (first,) = Handler(find).fit()

    def hook() -> tuple[bool, bool]:
        second = find()
        assert second is not None
        return first.is_under_way(), second.is_under_way()

    assert Handler(hook).fit() == [(False, True)]


def test_another_thread_sees_it_too() -> None:
    """The state of the call is correct on another thread, during the call and after it."""
    inside, leave = threading.Event(), threading.Event()
    calls: list[ActiveCall | None] = []

    def hook() -> None:
        calls.append(find())
        inside.set()
        leave.wait(60.0)

    thread = threading.Thread(target=Handler(hook).fit)
    thread.start()
    assert inside.wait(60.0)
    assert calls[0] is not None
    assert calls[0].is_under_way()
    leave.set()
    thread.join()
    assert not calls[0].is_under_way()


def test_a_call_is_under_way_whatever_its_stack_does() -> None:
    """Generators, called functions and garbage collection are not mistaken for the end."""
    calls: list[ActiveCall | None] = []
    stop = threading.Event()

    def numbers(depth: int) -> Iterator[int]:
        if depth:
            yield from numbers(depth - 1)
        yield depth

    def hook() -> None:
        calls.append(find())
        while not stop.is_set():
            sum(numbers(20))
            gc.collect()

    thread = threading.Thread(target=Handler(hook).fit)
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        thread.start()
        while not calls:
            time.sleep(0.001)
        (call,) = calls
        assert call is not None
        assert all(call.is_under_way() for _ in range(20_000))
    finally:
        sys.setswitchinterval(interval_s)
        stop.set()
        thread.join()
    assert not call.is_under_way()


def test_a_call_that_raised_has_ended_though_its_frame_is_kept() -> None:
    """A traceback that keeps the frame does not keep the call active."""

    def hook() -> None:
        calls.append(find())
        raise RuntimeError("boom")

    calls: list[ActiveCall | None] = []
    with pytest.raises(RuntimeError) as kept:
        Handler(hook).fit()
    assert kept.value.__traceback__ is not None
    assert calls[0] is not None
    assert not calls[0].is_under_way()


def test_an_interpreter_that_cannot_tell_ends_no_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """If all frames are tracked by the collector, a call is active until ``let_go``."""
    monkeypatch.setattr(gc, "is_tracked", lambda _: True)
    (call,) = Handler(find).fit()
    assert call.is_under_way()
    call.let_go()
    assert not call.is_under_way()


def test_the_innermost_of_a_name_and_package_is_found() -> None:
    """Functions with other names and of other packages are skipped."""
    assert Handler(lambda: ActiveCall.find("fit", package="keras")).fit() == [None]
    assert Handler(lambda: ActiveCall.find("evaluate", package=HERE)).train() == [None]
    assert ActiveCall.find("fit", package=HERE) is None

    def inner() -> ActiveCall | None:
        return find()

    def outer() -> tuple[bool, bool]:
        (call,) = Handler(inner).fit()
        return call.is_under_way(), find().is_under_way()

    assert Handler(outer).train() == [(False, True)]


def test_the_error_that_ended_it_is_the_shells_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception kept by the shell belongs to the call only if it passed through it."""

    def failing(calls: list[ActiveCall]) -> Callable[[], None]:
        def hook() -> None:
            calls.append(find())
            raise RuntimeError("boom")

        return hook

    mine: list[ActiveCall] = []
    other: list[ActiveCall] = []
    for calls in (mine, other):
        with pytest.raises(RuntimeError) as caught:
            Handler(failing(calls)).train()
        if calls is mine:
            monkeypatch.setattr(sys, "last_value", caught.value, raising=False)
            monkeypatch.setattr(sys, "last_exc", caught.value, raising=False)
    assert str(mine[0].error()) == "boom"
    assert other[0].error() is None


def test_what_the_call_held_is_let_go() -> None:
    """After ``let_go`` the local variables of the call are released."""

    class Model:
        pass

    def fit() -> tuple[ActiveCall | None, weakref.ref[Model]]:
        model = Model()
        return ActiveCall.find("fit", package=HERE), weakref.ref(model)

    call, model = fit()
    assert call is not None
    call.let_go()
    gc.collect()
    assert model() is None


def test_the_list_that_holds_a_callback() -> None:
    """The handler's own list is returned; a callback that is not in it gets ``None``."""
    found: list[object] = []

    class Callback:
        def __call__(self) -> None:
            found.append(find_callback_list(self))

    handler = Handler(Callback())
    handler.fit()
    assert found[0] is handler.callbacks
    stranger = Callback()

    def wrapped() -> None:
        stranger()

    Handler(wrapped).fit()
    assert found[1] is None


def test_no_property_of_the_users_is_run() -> None:
    """An object on the stack whose ``callbacks`` is a property that fails does no harm."""

    class Touchy:
        @property
        def callbacks(self) -> list[object]:
            raise AssertionError("touched")

        def run(self) -> object:
            return find_callback_list(self)

    assert Touchy().run() is None
