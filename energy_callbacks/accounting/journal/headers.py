"""Checks the types of the values in the header of a journal, so that readers can rely on them."""

import math
import reprlib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final

from energy_callbacks.core.errors import JournalError

REQUIRED: Final = ("run_id", "attempt", "host", "rank", "unix_s")
"""Names of the values without which a journal cannot be merged with others."""
# Paths of the values of each type. Objects come first, because they contain other values. Other
# values of a header are only shown, as text.
_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "an object": (
        "tags", "before", "config", "config.place", "config.place.intensity", "environment",
        "imported",
    ),
    "a text": (
        "run_id", "host", "launch", "run_name", "framework", "framework_version", "before.folder",
        "config.currency", "environment.command", "environment.git_commit",
    ),
    "a whole number": (
        "attempt", "rank", "pid", "local_rank", "world_size", "local_world_size"
    ),
    "a number": ("config.pue", "config.price_per_kwh"),
    "a time": ("unix_s",),
    "a list of strings": ("columns",),
    "an object of numbers": ("before.energy_j",),
}  # fmt: skip
# Whole numbers must be smaller than this: attempts, ranks, process ids, numbers of processes.
_MOST: Final = 2**31
# Unix times of the first and the last second that ``datetime`` has: in the years 1 and 9999.
_FIRST_S: Final = -62_135_596_800
_LAST_S: Final = 253_402_300_799


def check(header: Mapping[str, Any], path: Path, line: int, required: Collection[str] = ()) -> None:
    """Check the types of the values in a header.

    Args:
        header: the header.
        path: path of the journal, for the message.
        line: number of the header's line, for the message.
        required: names of the values that must not be missing or null.

    Raises:
        JournalError: if a value has the wrong type, or if a required value is missing.
    """
    kinds = ((name, kind) for kind, names in _NAMES.items() for name in names)
    for name, kind in kinds:
        value: Any = header
        for key in name.split("."):
            value = value.get(key) if value is not None else None
        is_right = name not in required if value is None else _CHECKS[kind](value)
        if not is_right:
            raise JournalError(
                f"{path}, line {line}: {name} of the header must be {kind}, got "
                f"{reprlib.repr(value)}; the file is damaged, or another program wrote it"
            )


def is_number(value: object) -> bool:
    """Return whether a JSON value is a number that a ``float`` can hold.

    >>> is_number(1.5), is_number(True), is_number("1"), is_number(10**400)
    (True, False, False, False)
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


_CHECKS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "a text": lambda value: isinstance(value, str),
    "a number": is_number,
    "a whole number": lambda value: (
        isinstance(value, int) and is_number(value) and 0 <= value < _MOST
    ),
    "a time": lambda value: is_number(value) and _FIRST_S <= value <= _LAST_S,
    "a list of strings": lambda value: (
        isinstance(value, list) and all(isinstance(one, str) for one in value)
    ),
    "an object": lambda value: isinstance(value, dict),
    "an object of numbers": lambda value: (
        isinstance(value, dict) and all(map(is_number, value.values()))
    ),
}
