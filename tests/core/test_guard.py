"""An error of this package gives one warning and ends measuring."""

import functools
import signal
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

import pytest

from energy_callbacks.core.guard import harmless
from energy_callbacks.outputs.fault_tolerant import FaultTolerantOutput


class Owner:
    def __init__(self) -> None:
        self.messages: list[str] = []

    def abandon(self, message: str) -> None:
        self.messages.append(message)

    @harmless
    def divide(self, by: float) -> float:
        return 1.0 / by

    @harmless
    def be_terminated(self) -> None:
        signal.raise_signal(signal.SIGTERM)

    @harmless
    def interrupt(self) -> None:
        raise KeyboardInterrupt


def test_a_result_passes_through() -> None:
    """A method that does not raise returns its result."""
    owner = Owner()
    assert owner.divide(2.0) == 0.5
    assert owner.messages == []


def test_an_exception_becomes_none_and_the_owner_gives_up() -> None:
    """The caller gets None; the owner is told once which method failed."""
    owner = Owner()
    assert owner.divide(0.0) is None
    assert len(owner.messages) == 1
    assert "divide" in owner.messages[0]


def test_ctrl_c_passes_through() -> None:
    """KeyboardInterrupt passes through."""
    with pytest.raises(KeyboardInterrupt):
        Owner().interrupt()


class Preempted(Exception):
    """What a user's handler raises."""


def preempt(_number: int, _frame: FrameType | None) -> NoReturn:
    """A handler."""
    raise Preempted


class Handler:
    """An object as Lightning's connector registers it."""

    def __call__(self, number: int, frame: FrameType | None) -> NoReturn:
        preempt(number, frame)

    def handle(self, number: int, frame: FrameType | None) -> NoReturn:
        raise Preempted


@pytest.fixture(
    params=[preempt, functools.partial(preempt), Handler(), Handler().handle],
    ids=["function", "partial", "object", "method"],
)
def _handler(request: pytest.FixtureRequest) -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, request.param)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("_handler")
def test_what_a_handler_of_a_signal_raises_passes_through() -> None:
    """The exception of a user's SIGTERM handler inside a guarded method ends the training."""
    owner = Owner()
    with pytest.raises(Preempted):
        owner.be_terminated()
    assert owner.messages == []


@pytest.mark.usefixtures("_handler")
def test_a_handler_may_raise_while_an_output_writes() -> None:
    """It does not count as a failure of the output, which continues."""

    class Writer:
        def __init__(self) -> None:
            self.written: list[int] = []

        def write(self, scalars: object, step: int, unix_s: float) -> None:
            self.written.append(step)
            if step == 0:
                signal.raise_signal(signal.SIGTERM)

        def close(self) -> None:
            """Nothing."""

    writer = Writer()
    output = FaultTolerantOutput(writer)
    with pytest.raises(Preempted):
        output.write({}, 0, 0.0)
    output.write({}, 1, 0.0)
    assert writer.written == [0, 1]
