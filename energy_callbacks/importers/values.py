"""Parses numbers and times of other programs' files; ``None`` for anything else."""

import math
import re
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from energy_callbacks.core.units import bytes_from_mebibytes, hertz_from_megahertz

# "117.25 W", "97 %", "1024 MiB": what stands before the unit.
_NUMBER: Final = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,3})?)\s*([A-Za-z%]*)\s*")
_LONGEST: Final = 64
# Beyond what any device has: 1 PiB, 100 GHz.
_MOST_BYTES, _MOST_MHZ, _MOST_INDEX = 2**50, 1e5, 10_000


class Moment(NamedTuple):
    """Wall time: ``s`` since 1970 of the zone that it is given in, and whether no zone is given."""

    s: float
    is_local: bool


def number(value: Any) -> float | None:
    """A finite number, also one that stands in text with its unit behind it.

    >>> number(3), number("117.25 W"), number("[N/A]"), number(float("nan")), number(True)
    (3.0, 117.25, None, None, None)
    """
    if isinstance(value, str):
        match = _NUMBER.fullmatch(value) if len(value) <= _LONGEST else None
        value = float(match[1]) if match else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def at_least_0(value: Any) -> float | None:
    """Likewise, and nothing below zero.

    >>> at_least_0("0"), at_least_0(-1)
    (0.0, None)
    """
    found = number(value)
    return found if found is not None and found >= 0.0 else None


def above_0(value: Any) -> float | None:
    """Likewise, and not zero, by which many programs say that they do not know.

    >>> above_0(0.0), above_0("2 W")
    (None, 2.0)
    """
    return at_least_0(value) or None


def share(value: Any) -> float | None:
    """Per cent as a share of one; above a hundred it has no meaning.

    >>> share("97 %"), share(250)
    (0.97, None)
    """
    found = at_least_0(value)
    return found / 100.0 if found is not None and found <= 100.0 else None


def celsius(value: Any) -> float | None:
    """A temperature that a chip can have; 0 is what programs write for a missing sensor.

    >>> celsius("56"), celsius(0), celsius(9999)
    (56.0, None, None)
    """
    found = above_0(value)
    return found if found is not None and found < 200.0 else None


def size_bytes(value: Any) -> float | None:
    """A size in bytes that a memory can have.

    >>> size_bytes(1024), size_bytes(1e300), size_bytes(-1)
    (1024.0, None, None)
    """
    found = at_least_0(value)
    return found if found is not None and found < _MOST_BYTES else None


def size_from_mebibytes(value: Any) -> float | None:
    """Likewise of MiB.

    >>> size_from_mebibytes("1 MiB")
    1048576.0
    """
    found = number(value)
    return None if found is None else size_bytes(bytes_from_mebibytes(found))


def clock_from_megahertz(value: Any) -> float | None:
    """A clock in Hz; 0 MHz is what programs write for one that they cannot read.

    >>> clock_from_megahertz("1980 MHz"), clock_from_megahertz(0)
    (1980000000.0, None)
    """
    found = above_0(value)
    return hertz_from_megahertz(found) if found is not None and found < _MOST_MHZ else None


def index(value: Any) -> int | None:
    """Number of a device.

    >>> index("3"), index(1e300), index(None)
    (3, None, None)
    """
    found = at_least_0(value)
    return int(found) if found is not None and found < _MOST_INDEX else None


def whole(value: float | None) -> int | None:
    """The nearest integer; nothing is known of zero and of nothing.

    >>> whole(2.6), whole(0.0), whole(None)
    (3, None, None)
    """
    return round(value) if value else None


def moment(text: Any) -> Moment | None:
    """ISO 8601, or as nvidia-smi writes it, with slashes.

    >>> moment("1970-01-01T00:01:00.5"), moment("1970/01/01 00:01:00.500")
    (Moment(s=60.5, is_local=True), Moment(s=60.5, is_local=True))
    >>> moment("1970-01-01T01:01:00+01:00"), moment("soon")
    (Moment(s=60.0, is_local=False), None)
    """
    if not isinstance(text, str) or len(text) > _LONGEST:
        return None
    try:
        found = datetime.fromisoformat(text.strip().replace("/", "-"))
        is_local = found.tzinfo is None
        return Moment((found.replace(tzinfo=UTC) if is_local else found).timestamp(), is_local)
    except (OverflowError, ValueError):
        return None


def unix_s(found: Moment) -> float:
    """A moment as a Unix time; without a zone it is taken to be of this machine's."""
    if not found.is_local:
        return found.s
    try:
        return datetime.fromtimestamp(found.s, tz=UTC).replace(tzinfo=None).timestamp()
    except (OSError, OverflowError, ValueError):
        return found.s


def words(value: Any) -> str | None:
    """Text of one line and moderate length, for names; ``None`` for what is no text."""
    if not isinstance(value, str) or not value.strip():
        return None
    return " ".join(value.split())[:200]
