"""Converts the texts of environment variables to values of settings.

A text that does not have the right form is returned unchanged, so that the check of the setting
refuses it.
"""

import contextlib
from typing import Any, Final

_BOOLEANS: Final = {
    "1": True, "true": True, "yes": True, "on": True,
    "0": False, "false": False, "no": False, "off": False,
}  # fmt: skip


def number(value: str) -> float | str:
    """Convert a number; return other texts unchanged.

    >>> number("0.3"), number("380"), number("hourly.csv")
    (0.3, 380.0, 'hourly.csv')
    """
    with contextlib.suppress(ValueError):
        return float(value)
    return value


def boolean(value: str) -> bool | str:
    """Convert ``1``, ``true``, ``yes``, ``on`` and their opposites, in any case."""
    return _BOOLEANS.get(value.lower(), value)


def devices(value: str) -> list[int | str] | str:
    """Convert a list of indices and UUIDs of GPUs with commas; ``auto`` and ``all`` are no lists.

    >>> devices("0, GPU-4e81"), devices("all")
    ([0, 'GPU-4e81'], 'all')
    """
    if value in ("auto", "all"):
        return value
    names = [name.strip() for name in value.split(",")]
    if not all(names):
        return value
    return [int(name) if name.isdecimal() else name for name in names]


def tags(value: str) -> Any:
    """Convert pairs of name and value with commas.

    >>> tags("team=vision, owner=me")
    {'team': 'vision', 'owner': 'me'}
    """
    pairs = [pair.partition("=") for pair in value.split(",")]
    if not all(equals for _, equals, _ in pairs):
        return value
    return {name.strip(): tag.strip() for name, _, tag in pairs}


def options(value: str) -> Any:
    """Convert pairs of name and value with commas, where values may be numbers or booleans.

    >>> options("max_slowdown=0.1, knob=clock, allow_changes=true")
    {'max_slowdown': 0.1, 'knob': 'clock', 'allow_changes': True}
    """
    pairs = tags(value)
    return {name: _plain(text) for name, text in pairs.items()} if pairs != value else value


def _plain(value: str) -> float | bool | str:
    found = number(value)
    return boolean(found) if isinstance(found, str) else found
