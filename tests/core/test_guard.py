"""Errors of this package end measuring, those of others are logged; no training ends by them."""

import functools
import logging
import signal
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

import pytest

from energy_callbacks.core.guard import FirstWarning, ForeignCalls, harmless, logger
from energy_callbacks.outputs.fault_tolerant import FaultTolerantOutput
from energy_callbacks.testing import FakeClock


class Owner:
    def __init__(self) -> None:
        self.messages: list[str] = []

    def _abandon(self, message: str) -> None:
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


def test_a_method_of_the_class_says_that_an_object_is_needed() -> None:
    """Frameworks call hooks of a class, if ``callbacks=`` has a class instead of an object."""
    with pytest.raises(
        TypeError, match=r"^divide\(\) needs an object.* as in GpuEnergyCallback\(\)"
    ):
        Owner.divide(2.0)  # type: ignore[arg-type]


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


class Server:
    """Answers a request, or fails after ``timeout_s`` while it is gone."""

    def __init__(self, clock: FakeClock, timeout_s: float = 0.0) -> None:
        self._clock = clock
        self._timeout_s = timeout_s
        self.is_gone = False
        self.asked_s: list[float] = []

    def ask(self) -> str:
        self.asked_s.append(self._clock.monotonic_s())
        if self.is_gone:
            self._clock.advance(self._timeout_s)
            raise ConnectionError("the server is gone")
        return "answer"


def test_foreign_calls_return_the_result() -> None:
    """A function that does not raise is called each time."""
    clock = FakeClock()
    server, calls = Server(clock), ForeignCalls("no answer", clock.monotonic_s)
    assert [calls.call(server.ask) for _ in range(3)] == ["answer"] * 3


def test_a_foreign_error_is_logged_once_and_tried_again_sparingly(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """In ten minutes there are ten calls and one warning; then the function is used as before."""
    clock = FakeClock()
    server, calls = Server(clock), ForeignCalls("no answer", clock.monotonic_s)
    server.is_gone = True
    for _ in range(600):
        assert calls.call(server.ask) is None
        clock.advance(1.0)
    server.is_gone = False
    assert [record.message for record in caplog.records] == ["no answer"]
    assert "the server is gone" in caplog.text
    assert len(server.asked_s) == 10
    assert [calls.call(server.ask) for _ in range(2)] == ["answer"] * 2


def test_slow_errors_take_one_percent_of_the_time() -> None:
    """A server that is gone and makes each call wait for 30 s is asked every 50 minutes."""
    clock = FakeClock()
    server, calls = Server(clock, timeout_s=30.0), ForeignCalls("no answer", clock.monotonic_s)
    server.is_gone = True
    while clock.monotonic_s() < 24 * 3600.0:
        calls.call(server.ask)
        clock.advance(1.0)
    assert len(server.asked_s) * 30.0 == pytest.approx(0.01 * 24 * 3600.0, rel=0.05)


def test_a_foreign_call_may_be_final() -> None:
    """What cannot be repeated is not tried again."""
    clock = FakeClock()
    server, calls = Server(clock), ForeignCalls("no answer", clock.monotonic_s, retries=False)
    server.is_gone = True
    for _ in range(3):
        calls.call(server.ask)
        clock.advance(1e6)
    assert len(server.asked_s) == 1


@pytest.mark.usefixtures("_handler")
def test_a_handler_may_raise_in_a_foreign_call() -> None:
    """The exception of a user's SIGTERM handler is not one of the function."""
    calls = ForeignCalls("no answer")
    with pytest.raises(Preempted):
        calls.call(lambda: signal.raise_signal(signal.SIGTERM))
    assert calls.call(lambda: "answer") == "answer"


@pytest.fixture
def _broken_logging() -> Iterator[None]:
    """Add a log handler of the user that raises an exception."""

    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise ConnectionError("the server for logs is gone")

    handler = Broken()
    logging.getLogger("energy_callbacks").addHandler(handler)
    yield
    logging.getLogger("energy_callbacks").removeHandler(handler)


@pytest.mark.usefixtures("_broken_logging")
def test_a_log_handler_that_raises_harms_nothing() -> None:
    """Our messages are then lost for this handler."""
    logger.warning("a message")


def test_the_logger_names_the_caller(caplog: pytest.LogCaptureFixture) -> None:
    """A message has the file of the code that logs it."""
    logger.warning("a message")
    assert caplog.records[0].filename == "test_guard.py"
    assert caplog.records[0].name == "energy_callbacks"


def test_only_the_first_warning_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """It has the file of the code that warns."""
    warn = FirstWarning()
    for number in range(3):
        warn("number %d", number)
    assert [record.getMessage() for record in caplog.records] == ["number 0"]
    assert caplog.records[0].filename == "test_guard.py"


def wrapped() -> None:
    """Fail like a logger that raises an exception of its own for any other one."""
    try:
        signal.raise_signal(signal.SIGTERM)
    except Exception as error:
        raise ValueError("this value cannot be logged") from error


@pytest.mark.usefixtures("_handler")
def test_a_handler_s_exception_passes_through_if_it_is_wrapped() -> None:
    """A logger of Lightning raises ValueError for any exception; SIGTERM must end the training."""
    with pytest.raises(Preempted):
        ForeignCalls("no answer").call(wrapped)


@pytest.mark.usefixtures("_handler")
def test_a_training_after_a_signal_is_guarded(caplog: pytest.LogCaptureFixture) -> None:
    """An error while the user handles the exception of a signal is an error like any other."""
    try:
        signal.raise_signal(signal.SIGTERM)
    except Preempted:
        assert ForeignCalls("no answer").call(lambda: 1 / 0) is None
    assert "no answer" in caplog.text
