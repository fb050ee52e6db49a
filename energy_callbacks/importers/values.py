"""Parses numbers and times in files of other programs; invalid values become ``None``."""

import math
import re
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from energy_callbacks.core.units import bytes_from_mebibytes, hertz_from_megahertz

# Matches a number with an optional unit: "117.25 W", "97 %", "1024 MiB".
_NUMBER: Final = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,3})?)\s*([A-Za-z%]*)\s*")
# Maximum length of a text that is parsed, in characters.
_LONGEST: Final = 64
# Values at or above these limits are not plausible: 1 PiB, 100 GHz, device number 10 000.
_MOST_BYTES, _MOST_MHZ, _MOST_INDEX = 2**50, 1e5, 10_000


class Moment(NamedTuple):
    """A wall time in a log.

    Attributes:
        s: Unix time in seconds; if ``is_local``, seconds since 1970-01-01 00:00 local time.
        is_local: whether the log gives no time zone.
    """

    s: float
    is_local: bool


def number(value: Any) -> float | None:
    """Convert a number or a text to a finite ``float``; a unit after the number is ignored.

    >>> number(3), number("117.25 W"), number("[N/A]"), number(float("nan")), number(True)
    (3.0, 117.25, None, None, None)
    """
    if isinstance(value, str):
        match = _NUMBER.fullmatch(value) if len(value) <= _LONGEST else None
        value = float(match[1]) if match else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        parsed = float(value)
    except OverflowError:
        return None
    return parsed if math.isfinite(parsed) else None


def at_least_0(value: Any) -> float | None:
    """Convert a value as ``number`` does; negative numbers become ``None``.

    >>> at_least_0("0"), at_least_0(-1)
    (0.0, None)
    """
    parsed = number(value)
    return parsed if parsed is not None and parsed >= 0.0 else None


def above_0(value: Any) -> float | None:
    """Convert a value as ``number`` does; negative numbers and 0 become ``None``.

    Many programs write 0 for "unknown".

    >>> above_0(0.0), above_0("2 W")
    (None, 2.0)
    """
    return at_least_0(value) or None


def share(value: Any) -> float | None:
    """Convert a percentage (0 to 100) to a share (0 to 1).

    >>> share("97 %"), share(250)
    (0.97, None)
    """
    percent = at_least_0(value)
    return percent / 100.0 if percent is not None and percent <= 100.0 else None


def celsius(value: Any) -> float | None:
    """Return a temperature above 0 and below 200 degrees Celsius; 0 means a missing sensor.

    >>> celsius("56"), celsius(0), celsius(9999)
    (56.0, None, None)
    """
    parsed = above_0(value)
    return parsed if parsed is not None and parsed < 200.0 else None


def size_bytes(value: Any) -> float | None:
    """Return a memory size in bytes; ``None`` if it is negative or at least 1 PiB.

    >>> size_bytes(1024), size_bytes(1e300), size_bytes(-1)
    (1024.0, None, None)
    """
    parsed = at_least_0(value)
    return parsed if parsed is not None and parsed < _MOST_BYTES else None


def size_from_mebibytes(value: Any) -> float | None:
    """Convert a memory size from MiB to bytes; ``None`` as in ``size_bytes``.

    >>> size_from_mebibytes("1 MiB")
    1048576.0
    """
    size_mib = number(value)
    return None if size_mib is None else size_bytes(bytes_from_mebibytes(size_mib))


def clock_from_megahertz(value: Any) -> float | None:
    """Convert a clock frequency from MHz to Hz; ``None`` for 0 (not readable) or 100 GHz and more.

    >>> clock_from_megahertz("1980 MHz"), clock_from_megahertz(0)
    (1980000000.0, None)
    """
    clock_mhz = above_0(value)
    if clock_mhz is None or clock_mhz >= _MOST_MHZ:
        return None
    return hertz_from_megahertz(clock_mhz)


def index(value: Any) -> int | None:
    """Return the number of a device, from 0 to 9999.

    >>> index("3"), index(1e300), index(None)
    (3, None, None)
    """
    parsed = at_least_0(value)
    return int(parsed) if parsed is not None and parsed < _MOST_INDEX else None


def moment(text: Any) -> Moment | None:
    """Parse a date and time in ISO 8601; the date may have slashes, as in files of nvidia-smi.

    >>> moment("1970-01-01T00:01:00.5"), moment("1970/01/01 00:01:00.500")
    (Moment(s=60.5, is_local=True), Moment(s=60.5, is_local=True))
    >>> moment("1970-01-01T01:01:00+01:00"), moment("soon")
    (Moment(s=60.0, is_local=False), None)
    """
    if not isinstance(text, str) or len(text) > _LONGEST:
        return None
    try:
        time = datetime.fromisoformat(text.strip().replace("/", "-"))
        is_local = time.tzinfo is None
        return Moment((time.replace(tzinfo=UTC) if is_local else time).timestamp(), is_local)
    except (OverflowError, ValueError):
        return None


def unix_s(moment: Moment) -> float:
    """Convert a moment to Unix time in seconds.

    A local time is taken to be in the time zone of this machine, or in UTC if the platform cannot
    convert it.
    """
    if not moment.is_local:
        return moment.s
    try:
        return datetime.fromtimestamp(moment.s, tz=UTC).replace(tzinfo=None).timestamp()
    except (OSError, OverflowError, ValueError):
        return moment.s


def short_text(value: Any) -> str | None:
    """Return a text as one line of at most 200 characters; ``None`` if blank or not a text."""
    if not isinstance(value, str) or not value.strip():
        return None
    return " ".join(value.split())[:200]
