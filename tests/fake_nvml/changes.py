"""The log of all calls that set something, as the C library writes it (``c/changes.c``).

All processes that play a scenario write to one file. It has calls that were refused, too, so that a
test can show that no process has called a setter.
"""

import math
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

Call = Literal["limit", "clock", "memory_clock", "load"]
CALLS: tuple[Call, ...] = ("limit", "clock", "memory_clock", "load")
_UNITS = {"limit": 1e-3, "clock": 1.0, "memory_clock": 1.0, "load": 1e-6}
HEADER = struct.Struct("=Q")
RECORD = struct.Struct("=iiiiiIq")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A call that sets something, at ``t_s`` since the epoch; ``result`` is NVML's code.

    ``value`` is in W, in MHz (0: clocks are reset), or a share of the full load.
    """

    t_s: float
    card: int
    pid: int
    call: Call
    value: float
    result: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What is set on a card; clocks are ``None`` if they are not locked."""

    limit_w: float
    clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    load: float = 1.0

    def after(self, change: Change) -> "Settings":
        """The settings after a change."""
        if change.call == "limit":
            return replace(self, limit_w=change.value)
        if change.call == "clock":
            return replace(self, clock_mhz=change.value or None)
        if change.call == "memory_clock":
            return replace(self, memory_clock_mhz=change.value or None)
        return replace(self, load=change.value)


def log_path(scenario_path: Path) -> Path:
    """The log of a scenario file."""
    return Path(f"{scenario_path}.changes")


def read_changes(scenario_path: Path) -> list[Change]:
    """All calls so far, of all processes."""
    with log_path(scenario_path).open("rb") as file:
        (count,) = HEADER.unpack(file.read(HEADER.size))
        data = file.read(count * RECORD.size)
    return [
        Change(
            t_s=t_ns * 1e-9,
            card=card,
            pid=pid,
            call=CALLS[kind],
            value=round(value * _UNITS[CALLS[kind]], 6),
            result=result,
        )
        for is_complete, kind, card, pid, result, value, t_ns in RECORD.iter_unpack(data)
        if is_complete
    ]


def spans(
    found: Settings, changes: Iterable[Change], card: int
) -> Iterator[tuple[float, float, Settings]]:
    """The time spans of constant settings of a card, as start, end (s since the epoch), settings.

    Args:
        found: the settings before the first change.
        changes: the log.
        card: index of the card.
    """
    start_s, settings = -math.inf, found
    for change in changes:
        if change.card == card and change.result == 0:
            end_s = max(change.t_s, start_s)
            yield start_s, end_s, settings
            start_s, settings = end_s, settings.after(change)
    yield start_s, math.inf, settings
