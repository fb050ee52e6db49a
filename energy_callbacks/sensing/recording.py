"""A file of raw readings: every value that a sensor gave, at full resolution, as JSON lines.

The first line says what it is, a ``channel`` line what a number means, a ``readings`` line holds
what one channel gave in one go. ``docs/reference/journal.md`` describes it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from energy_callbacks.core import json_lines
from energy_callbacks.core.errors import JournalError
from energy_callbacks.core.records import Channel, Device, Reading, Sensor
from energy_callbacks.sensing.sources.protocol import Source, last_read, remarks

FORMAT: Final = "energy_callbacks.readings"
VERSION: Final = 1


class RecordedSource:
    """Another source whose readings are kept.

    Args:
        source: what is read.
        keep: called with all readings of each call, on the source's thread.
    """

    def __init__(self, source: Source, keep: Callable[[Sequence[Reading]], None]) -> None:
        self._source = source
        self._keep = keep

    @property
    def name(self) -> str:
        """See ``Source.name``."""
        return self._source.name

    @property
    def interval_s(self) -> float:
        """See ``Source.interval_s``."""
        return self._source.interval_s

    def open(self) -> Sequence[Channel]:
        """See ``Source.open``."""
        return self._source.open()

    def read(self) -> Sequence[Reading]:
        """See ``Source.read``."""
        return self._kept(self._source.read())

    def finish(self) -> Sequence[Reading]:
        """See ``FinishingSource``."""
        return self._kept(last_read(self._source))

    def remarks(self) -> Sequence[str]:
        """See ``RemarkingSource``."""
        return remarks(self._source)

    def _kept(self, readings: Sequence[Reading]) -> Sequence[Reading]:
        self._keep(readings)
        return readings

    def close(self) -> None:
        """See ``Source.close``."""
        self._source.close()


class Lines:
    """Readings as lines of the file.

    Args:
        start_s: monotonic time that the file calls zero.
        unix_s: the wall time then.
    """

    def __init__(self, start_s: float, unix_s: float) -> None:
        self._start_s = start_s
        self._numbers: dict[Channel, int] = {}
        self.header = {"type": "header", "format": FORMAT, "version": VERSION, "unix_s": unix_s}

    def of(self, readings: Sequence[Reading]) -> Iterator[dict[str, Any]]:
        """One line for each channel among them, and before it the channel itself, once."""
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
    """Channels and readings of a file, times since its start; a line that was cut off is left out.

    Raises:
        JournalError: if the file is no such recording, or a newer one.
    """
    channels: dict[int, Channel] = {}
    readings: list[Reading] = []
    with path.open(encoding="utf-8", errors="replace") as lines:
        records = json_lines.parsed(lines)
        _check_header(next(records, {}), path)
        for record in records:
            if record["type"] == "channel":
                channels[record["number"]] = _channel(record)
            elif record["type"] == "readings":
                of = channels[record["channel"]]
                columns = [record["t_s"], record["value"]]
                if "t_error_s" in record:
                    columns.append(record["t_error_s"])
                rows = zip(*columns, strict=True)
                readings += [Reading(of, *row) for row in rows if row[1] is not None]
    return list(channels.values()), readings


def _check_header(header: dict[str, Any], path: Path) -> None:
    if header.get("format") != FORMAT:
        raise JournalError(
            f"{path} is no recording of readings: its first line is no header of one; "
            "give a *.readings file of a run with EnergyConfig(raw_readings=True)"
        )
    json_lines.check_version(header, VERSION, "recording", path)


def _channel(record: dict[str, Any]) -> Channel:
    device, sensor = record["device"], record["sensor"]
    return Channel(
        device=Device(
            **device | {name: tuple(device.get(name, ())) for name in ("notes", "instances")}
        ),
        quantity=record["quantity"],
        kind=record["kind"],
        sensor=None if sensor is None else Sensor(**sensor),
    )
