"""Replays recorded readings at their times."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

from energy_callbacks.core.errors import SourceLost
from energy_callbacks.core.records import Channel, Reading
from energy_callbacks.sensing import recording
from energy_callbacks.sensing.clock import Clock


class ReplaySource:
    """A source whose readings are known beforehand.

    ``read`` hands over each reading once, when the clock has reached its time. After ``close``
    and ``open`` it goes on where it was: time does not come back.

    Args:
        clock: time; readings are on its monotonic scale.
        channels: what it offers.
        readings: of these channels, in any order.
        interval_s: between reads.
        name: for people.

    Raises:
        ValueError: for a reading of a channel that is not offered.
    """

    def __init__(
        self,
        clock: Clock,
        channels: Sequence[Channel],
        readings: Iterable[Reading],
        *,
        interval_s: float = 0.5,
        name: str = "replay",
    ) -> None:
        self._clock = clock
        self._channels = tuple(channels)
        self._readings = sorted(readings, key=lambda reading: reading.t_s)
        self._interval_s = interval_s
        self._name = name
        self._played = 0
        self._is_open = False
        _check_offered(self._readings, self._channels)

    @classmethod
    def of_file(cls, clock: Clock, path: Path) -> Self:
        """The readings that ``EnergyConfig(raw_readings=True)`` kept, from now on.

        What the recording's attempt read at its start is played at once.

        Raises:
            JournalError: if the file is no such recording.
        """
        start_s = clock.monotonic_s()
        channels, readings = recording.read(path)
        moved = [replace(reading, t_s=start_s + reading.t_s) for reading in readings]
        return cls(clock, channels, moved, name=f"replay of {path.name}")

    @property
    def name(self) -> str:
        """See ``Source.name``."""
        return self._name

    @property
    def interval_s(self) -> float:
        """See ``Source.interval_s``."""
        return self._interval_s

    def open(self) -> Sequence[Channel]:
        """The channels; always succeeds."""
        self._is_open = True
        return self._channels

    def read(self) -> Sequence[Reading]:
        """The readings whose time has come since the last call.

        Raises:
            SourceLost: if it was not opened.
        """
        if not self._is_open:
            raise SourceLost(f"{self._name} is not open; call open() first")
        now_s = self._clock.monotonic_s()
        start = self._played
        while self._played < len(self._readings) and self._readings[self._played].t_s <= now_s:
            self._played += 1
        return self._readings[start : self._played]

    def close(self) -> None:
        """See ``Source.close``."""
        self._is_open = False


def _check_offered(readings: Iterable[Reading], channels: Sequence[Channel]) -> None:
    offered = set(channels)
    for reading in readings:
        if reading.channel not in offered:
            what = f"{reading.channel.quantity} of {reading.channel.device.key}"
            raise ValueError(
                f"a reading at t_s={reading.t_s} is of a channel that is not offered: {what}; "
                "list its channel in channels="
            )
