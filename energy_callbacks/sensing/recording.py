"""Converts raw readings to the lines of a JSON-lines file, and reads such files.

The file contains every value of every sensor at full resolution. The first line is a header. A
``channel`` line describes a channel and gives it a number. A ``readings`` line contains the
readings of one channel from one call of its source. ``docs/reference/journal.md`` describes the
format.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from energy_callbacks.core import json_lines
from energy_callbacks.core.errors import JournalError
from energy_callbacks.core.records import Channel, Reading

FORMAT: Final = "energy_callbacks.readings"
VERSION: Final = 1


class Lines:
    """Converts readings to lines of the file.

    Attributes:
        header: the first line of the file, as a dictionary.

    Args:
        start_s: monotonic time of the start of the file; times in the file are relative to it.
        unix_s: wall time at ``start_s``, seconds since 1970.
    """

    def __init__(self, start_s: float, unix_s: float) -> None:
        self._start_s = start_s
        self._numbers: dict[Channel, int] = {}
        self.header = {"type": "header", "format": FORMAT, "version": VERSION, "unix_s": unix_s}

    def of(self, readings: Sequence[Reading]) -> Iterator[dict[str, Any]]:
        """Yield, as dictionaries, a ``readings`` line for each channel of ``readings``.

        A new channel has a ``channel`` line before its ``readings`` line.
        """
        by_channel: dict[int, list[Reading]] = {}
        for reading in readings:
            by_channel.setdefault(id(reading.channel), []).append(reading)
        for same in by_channel.values():
            channel = same[0].channel
            if channel not in self._numbers:
                self._numbers[channel] = len(self._numbers)
                yield {"type": "channel", "number": self._numbers[channel]} | asdict(channel)
            line: dict[str, Any] = {
                "type": "readings",
                "channel": self._numbers[channel],
                "t_s": [round(reading.t_s - self._start_s, 6) for reading in same],
                "value": [reading.value for reading in same],
            }
            if any(reading.t_error_s for reading in same):
                line["t_error_s"] = [round(reading.t_error_s, 6) for reading in same]
            yield line


def read(path: Path) -> tuple[list[Channel], list[Reading]]:
    """Return the channels and the readings of a file, with times in seconds from its start.

    Incomplete lines and missing values are skipped.

    Raises:
        JournalError: if the file is not a recording of readings, or has a newer version.
    """
    from pydantic import TypeAdapter  # takes long to import

    to_channel, channels = TypeAdapter(Channel), dict[int, Channel]()
    readings: list[Reading] = []
    with path.open(encoding="utf-8", errors="replace") as lines:
        records = json_lines.parsed(lines)
        header = next(records, {})
        if header.get("format") != FORMAT:
            raise JournalError(
                f"{path} is not a recording of readings: its first line is not the header of "
                "one; give a *.readings file of a run with EnergyConfig(raw_readings=True)"
            )
        json_lines.check_version(header, VERSION, "recording", path)
        for record in records:
            if record["type"] == "channel":
                channels[record["number"]] = to_channel.validate_python(record)
            elif record["type"] == "readings":
                channel = channels[record["channel"]]
                names = ("t_s", "value", "t_error_s")
                rows = zip(*(record[name] for name in names if name in record), strict=True)
                readings += [Reading(channel, *row) for row in rows if row[1] is not None]
    return list(channels.values()), readings
