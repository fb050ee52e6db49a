"""Checks the values in lines of a journal, so that a damaged line raises an exception at once."""

import reprlib
from collections.abc import Callable, Sequence
from typing import Any, Final

from energy_callbacks.accounting.journal.headers import is_number
from energy_callbacks.accounting.journal.journal import Record

INVALID: Final = (
    ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError
)  # fmt: skip
"""Exceptions that code raises if it reads a line with missing or invalid values."""


def number(value: Any) -> float:
    """Return a number as ``float``; raise ``TypeError`` for any other value."""
    if not is_number(value):
        raise TypeError(f"expected a number, got {reprlib.repr(value)}")
    return float(value)


def whole(value: Any) -> int:
    """Return a whole number; raise ``TypeError`` for any other value."""
    if not isinstance(value, int) or not is_number(value):
        raise TypeError(f"expected a whole number, got {reprlib.repr(value)}")
    return value


def text(value: Any) -> str:
    """Return a text; raise ``TypeError`` for any other value."""
    if not isinstance(value, str):
        raise TypeError(f"expected a string, got {reprlib.repr(value)}")
    return value


def optional(check: Callable[[Any], object], record: Record, names: Sequence[str]) -> None:
    """Call ``check`` with each of these values of a line that is not null."""
    for name in names:
        if record[name] is not None:
            check(record[name])


def encodable(value: Any) -> Any:
    """Replace lone surrogates in all texts of a JSON value.

    Undecodable bytes of a command line become lone surrogates, which UTF-8 cannot encode.

    Raises:
        TypeError: for a number that is too large for a ``float``; JSON may have such numbers.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        number(value)
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        return {encodable(key): encodable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [encodable(item) for item in value]
    return value
