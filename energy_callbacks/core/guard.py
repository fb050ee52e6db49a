"""Handles errors of this package: measuring stops with one warning, and the training continues."""

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
        """Stop measuring, and log ``message`` with the exception being handled."""
        ...


Owner = TypeVar("Owner", bound=Abandonable)
P = ParamSpec("P")
R = TypeVar("R")


def give_up(owner: Abandonable, method: str) -> None:
    """Make ``owner`` stop measuring, because ``method`` raised the exception being handled.

    An exception that a signal handler raised is raised again instead: see ``pass_on_signals``.

    Args:
        owner: object whose method failed.
        method: name of the method, for the message.
    """
    pass_on_signals()
    owner.abandon(f"{type(owner).__name__}.{method} failed; measuring ends here")


def pass_on_signals() -> None:
    """Re-raise the exception that is being handled if a signal handler raised it.

    The interpreter may run a signal handler while code of this package runs. If the handler raises
    an exception, for example to end the training at SIGTERM, this is not an error of this package.
    """
    error = sys.exc_info()[1]
    if error is None or error.__traceback__ is None:
        return
    handlers = {_code_of(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    if any(frame.f_code in handlers for frame, _ in traceback.walk_tb(error.__traceback__)):
        raise error


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
