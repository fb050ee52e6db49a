"""Handles exceptions, so that they do not end the training.

- ``harmless``: errors of this package. Measuring stops with one warning.
- ``ForeignCalls``: errors of functions that this package calls, such as loggers of the user.
- ``FirstWarning``: mistakes of the user that may occur at every step.
- ``logger``: errors of the user's log handlers.
"""

import functools
import logging
import math
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar

# Time after a failed call in which the function is not called again, s: at least ``_PAUSE_S``, and
# ``_PAUSES`` times the duration of the failed call. A server that is gone may make each call wait
# for a time limit of 30 s, so that the duration counts: failed calls take at most 1 % of the time.
_PAUSE_S: Final = 60.0
_PAUSES: Final = 100.0


class Abandonable(Protocol):
    """An object that can stop measuring."""

    def _abandon(self, message: str) -> None:
        """Stop measuring, and log ``message`` with the exception being handled."""


Owner = TypeVar("Owner", bound=Abandonable)
P = ParamSpec("P")
R = TypeVar("R")


def give_up(owner: Abandonable, method: str) -> None:
    """Make ``owner`` stop measuring, because ``method`` raised the exception being handled.

    An exception that a signal handler raised is raised again instead: see ``pass_on_signals``.

    Args:
        owner: object whose method failed.
        method: name of the method, for the message.

    Raises:
        TypeError: if the method was called on its class, so that ``owner`` is the first argument.
    """
    pass_on_signals()
    if not hasattr(owner, "_abandon"):
        raise TypeError(
            f"{method}() needs an object, but was called on a class; add parentheses, as in "
            "GpuEnergyCallback()"
        )
    owner._abandon(f"{type(owner).__name__}.{method} failed; energy is no longer measured")


def pass_on_signals() -> None:
    """Raise the exception of a signal handler again, if it caused the one that is being handled.

    The interpreter may run a signal handler while code of this package runs. If the handler raises
    an exception, for example to end the training at SIGTERM, this is not an error of this package.
    A function of another package may have caught it, and raised another exception instead.
    """
    handlers = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    for error in _causes(sys.exc_info()[1]):
        if any(frame.f_code in handlers for frame, _ in traceback.walk_tb(error.__traceback__)):
            raise error


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception, and those during whose handling it was raised.

    Exceptions whose handling began before the present call are left out: the user may train again
    in an ``except`` block.
    """
    running = {id(frame) for frame, _ in traceback.walk_stack(None)}
    seen: list[BaseException] = []
    while error is not None and not any(one is error for one in seen):
        seen.append(error)
        yield error
        error = error.__cause__ or error.__context__
        trace = None if error is None else error.__traceback__
        if trace is None or id(trace.tb_frame) in running:
            return


def _code_of(handler: Any) -> CodeType | None:
    """Return the code object of a signal handler; ``None`` if the handler is not Python code."""
    if not callable(handler):  # SIG_DFL, SIG_IGN
        return None
    function = getattr(handler, "func", handler)  # unwraps a functools.partial
    for one in (function, type(function).__call__):  # functions and methods; callable objects
        if isinstance(code := getattr(one, "__code__", None), CodeType):
            return code
    return None


def harmless(
    method: Callable[Concatenate[Owner, P], R],
) -> Callable[Concatenate[Owner, P], R | None]:
    """Decorate a method to stop measuring and return ``None`` if the method raises an exception.

    Two kinds of exceptions still reach the caller: those that a signal handler raised, and those
    that do not derive from ``Exception``, such as ``KeyboardInterrupt``.
    """

    @functools.wraps(method)
    def guarded(self: Owner, /, *args: P.args, **kwargs: P.kwargs) -> R | None:
        try:
            return method(self, *args, **kwargs)
        except Exception:  # noqa: BLE001 - must not end the training
            give_up(self, method.__name__)
            return None

    return guarded


class _Logger(logging.LoggerAdapter[logging.Logger]):
    """A logger that drops messages whose handler or filter raises an exception."""

    def log(self, level: int, msg: object, *args: Any, **kwargs: Any) -> None:
        """See ``logging.Logger.log``."""
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1  # the caller of this method
        try:
            super().log(level, msg, *args, **kwargs)
        except Exception:  # noqa: BLE001 - the handlers are those of the user
            pass_on_signals()


logger: Final = _Logger(logging.getLogger("energy_callbacks"), {})
"""The logger of this package. All modules whose code runs during a training use it."""


class FirstWarning:
    """Logs a warning at the first call, and nothing at later calls."""

    def __init__(self) -> None:
        self._was_given = False

    def __call__(self, message: str, *values: object, cause: Exception | None = None) -> None:
        """Log ``message % values``, with the traceback of ``cause`` if there is one."""
        if not self._was_given:
            self._was_given = True
            logger.warning(message, *values, exc_info=cause, stacklevel=2)


class ForeignCalls:
    """Calls functions that do not belong to this package, such as those of the user's loggers.

    The first exception is logged as a warning, and no later one. After an exception, calls are left
    out for a minute, or for 100 times the duration of the failed call if that is longer. Two kinds
    of exceptions still reach the caller: see ``harmless``.

    Args:
        warning: the message, to which the exception is added.
        now_s: returns the monotonic time, s.
        retries: whether functions are called again after an exception.

    Attributes:
        has_failed: whether the newest call raised an exception; calls that are left out do not
            count.
    """

    def __init__(
        self, warning: str, now_s: Callable[[], float] = time.monotonic, *, retries: bool = True
    ) -> None:
        self._warning = warning
        self._now_s = now_s
        self._retries = retries
        self._warn = FirstWarning()
        self._next_s = -math.inf
        self.has_failed = False

    def call(self, function: Callable[[], R]) -> R | None:
        """Return ``function()``; ``None`` if it raises an exception, or is not called."""
        start_s = self._now_s()
        if start_s < self._next_s:
            return None
        try:
            result = function()
        except Exception as error:  # noqa: BLE001 - functions of others may raise anything
            pass_on_signals()
            self._note(error, start_s)
            return None
        self.has_failed = False
        return result

    def _note(self, error: Exception, start_s: float) -> None:
        end_s = self._now_s()
        pause_s = max(_PAUSE_S, _PAUSES * (end_s - start_s)) if self._retries else math.inf
        self._next_s = end_s + pause_s
        self.has_failed = True
        self._warn("%s", self._warning, cause=error)
