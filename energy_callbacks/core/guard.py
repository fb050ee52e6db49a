"""Stops measuring with one warning if this package fails, so that the training continues."""

import functools
import signal
import sys
import traceback
from collections.abc import Callable
from types import CodeType
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar


class Abandonable(Protocol):
    """An object that can stop measuring."""

    def abandon(self, message: str) -> None:
        """Stop measuring, and log ``message`` once."""
        ...


Owner = TypeVar("Owner", bound=Abandonable)
P = ParamSpec("P")
R = TypeVar("R")


def give_up(owner: Abandonable, method: str) -> None:
    """Make ``owner`` stop measuring, because ``method`` raised the exception being handled."""
    pass_on_signals()
    owner.abandon(f"{type(owner).__name__}.{method} failed; measuring ends here")


def pass_on_signals() -> None:
    """Re-raise the exception that is being handled if a signal handler raised it.

    The interpreter may run a signal handler while code of this package runs. If a user's handler of
    SIGTERM raises an exception there, the exception is meant to end the training and is not an
    error of this package.
    """
    error = sys.exc_info()[1]
    if error is None or error.__traceback__ is None:
        return
    handlers = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    if any(frame.f_code in handlers for frame, _ in traceback.walk_tb(error.__traceback__)):
        raise error


def _code_of(handler: Any) -> CodeType | None:
    """Return the code object of a signal handler; ``None`` if it is not written in Python."""
    if not callable(handler):  # SIG_DFL, SIG_IGN
        return None
    function = getattr(handler, "func", handler)  # if it is a functools.partial
    for one in (function, type(function).__call__):  # functions and methods; callable objects
        if isinstance(code := getattr(one, "__code__", None), CodeType):
            return code
    return None


def harmless(
    method: Callable[Concatenate[Owner, P], R],
) -> Callable[Concatenate[Owner, P], R | None]:
    """Decorate a method so that an exception stops measuring and the method returns ``None``.

    Exceptions from signal handlers and exceptions such as ``KeyboardInterrupt`` are raised.
    """

    @functools.wraps(method)
    def guarded(self: Owner, /, *args: P.args, **kwargs: P.kwargs) -> R | None:
        try:
            return method(self, *args, **kwargs)
        except Exception:  # noqa: BLE001 - must not end the training
            give_up(self, method.__name__)
            return None

    return guarded
