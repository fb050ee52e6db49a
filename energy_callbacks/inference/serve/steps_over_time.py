"""Values that change at given times, such as a power cap or a rate of requests."""

import math
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from energy_callbacks.inference.control.loop import CapSchedule
from energy_callbacks.powercap.search import schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsOverTime:
    """A value that is constant between some moments.

    Attributes:
        starts_s: start of each value, s, in ascending order; the first is 0.
        values: the values.

    Raises:
        ValueError: if the times do not begin at 0 or do not ascend, or if a value is negative or
            not finite.
    """

    starts_s: tuple[float, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.starts_s or self.starts_s[0] != 0.0:
            raise ValueError(f"the first time must be 0, got {list(self.starts_s)}")
        if sorted(set(self.starts_s)) != list(self.starts_s):
            raise ValueError(f"times must ascend, got {list(self.starts_s)}")
        if not all(map(math.isfinite, self.starts_s)):
            raise ValueError(f"times must be finite, got {list(self.starts_s)}")
        if not all(0.0 <= value < math.inf for value in self.values):
            raise ValueError(f"values must be at least 0 and finite, got {list(self.values)}")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the value of an option: ``300``, or values with their starts in s.

        Raises:
            ValueError: if it is neither.

        >>> caps = StepsOverTime.parse("0:300,180:240")
        >>> caps.at(179.9), caps.at(180.0), caps.next_s(0.0), caps.next_s(180.0)
        (300.0, 240.0, 180.0, inf)
        """
        pairs = [part.rpartition(":") for part in text.split(",")]
        try:
            starts = tuple(float(start or 0.0) for start, _, _ in pairs)
            values = tuple(float(value) for _, _, value in pairs)
        except ValueError:
            raise ValueError(
                f"{text!r} is neither a number nor values with their start in seconds, such as "
                "0:300,180:240"
            ) from None
        return cls(starts_s=starts, values=values)

    def at(self, t_s: float) -> float:
        """Return the value at a time, s."""
        return self.values[max(bisect_right(self.starts_s, t_s) - 1, 0)]

    def next_s(self, t_s: float) -> float:
        """Return the time of the next change after a time, s; infinity if there is none."""
        after = bisect_right(self.starts_s, t_s)
        return self.starts_s[after] if after < len(self.starts_s) else math.inf


def caps(text: str, now_unix_s: float | None) -> CapSchedule:
    """Return the caps of ``--cap``: W, caps with their starts, or a CSV file.

    Args:
        text: value of the option; see ``StepsOverTime.parse``. The name of a file ends with
            ``.csv``; see ``powercap.search.schedule``.
        now_unix_s: time at which serving begins, in seconds since 1970; ``None`` for the first time
            in the file.

    Raises:
        ValueError: if the text or the file is not valid, or if there is no cap at some time.
    """
    if Path(text).suffix.lower() != ".csv":
        given = StepsOverTime.parse(text)
        return CapSchedule(tuple(zip(given.starts_s, given.values, strict=True)))
    file = schedule.CapSchedule.read(text)
    start_s = file.changes[0].start_s if now_unix_s is None else now_unix_s
    later = [(one.start_s - start_s, one.cap_w) for one in file.changes if one.start_s > start_s]
    steps: list[tuple[float, float]] = []
    for at_s, cap_w in [(0.0, file.at(start_s)), *later]:
        if cap_w is None:
            raise ValueError(
                f"{text} has no cap {at_s:g} s after the start; serving needs one at all times"
            )
        steps.append((at_s, cap_w))
    return CapSchedule(tuple(steps))
