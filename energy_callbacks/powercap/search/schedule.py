"""Reads a schedule of power caps over time from a CSV file.

The file needs a header line with a column of times and a column of caps in W. A row is valid until
the next row, the last one without end. An empty cap means no cap::

    time,cap_w
    2026-01-31T08:00+01:00,5000
    2026-01-31T20:00+01:00,
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from energy_callbacks.accounting.dated_csv import TIMES, DatedCsv, parse

_CAPS: Final = ("cap_w", "cap (w)", "cap", "limit_w", "power_w", "watts")


class CapChange(NamedTuple):
    """A cap from a moment on.

    Attributes:
        start_s: start, in seconds since 1970.
        cap_w: largest mean power of all cards together, W; ``None`` for no cap.
    """

    start_s: float
    cap_w: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CapSchedule:
    """The caps in a file.

    Attributes:
        changes: caps in time order, at least one.
    """

    changes: Sequence[CapChange]

    @classmethod
    def read(cls, path: str | Path) -> "CapSchedule":
        """Read a CSV file.

        Raises:
            ValueError: if the file cannot be read, lacks a column, or has an invalid value. For an
                invalid value, the message has its line and column.
        """
        return parse(Path(path).expanduser(), _schedule, what="power caps")

    def at(self, unix_s: float) -> float | None:
        """Return the cap at a time, W; ``None`` if there is none, as before the first row.

        Args:
            unix_s: time in seconds since 1970.
        """
        after = bisect_right(self.changes, unix_s, key=lambda change: change.start_s)
        return self.changes[after - 1].cap_w if after else None


def _schedule(file: DatedCsv) -> CapSchedule:
    time = file.first("times", TIMES)
    column = file.columns[file.first("power caps", _CAPS)]
    changes = [
        CapChange(at_s, _cap(file, cells[column], column)) for at_s, cells in file.rows(time)
    ]
    if not changes:
        raise ValueError(f"{file.path} has no row; add lines such as 2026-01-31T08:00Z,300")
    return CapSchedule(changes=changes)


def _cap(file: DatedCsv, text: str, column: int) -> float | None:
    cap_w = file.number(text, column, "for no cap")
    if cap_w is not None and not 0.0 < cap_w < math.inf:
        raise file.error(column, f"must be a positive number of watts, got {text!r}")
    return cap_w
