"""Replays recorded readings, each as soon as the clock has reached the time of the reading."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Self

from energy_callbacks.core.errors import SourceLost
from energy_callbacks.core.records import Channel, Reading
from energy_callbacks.sensing import recording
from energy_callbacks.sensing.clock import Clock

_time_s = attrgetter("t_s")


class ReplaySource:
    """A source whose readings are given in advance.

    Each reading is returned once, by the first call of ``read`` at or after the reading's time.
    After ``close`` and ``open``, ``read`` continues with the readings not returned yet.

    Args:
        clock: monotonic clock, to which the times of the readings refer.
        channels: channels that the source offers.
        readings: readings of these channels, in any order.
        interval_s: time from the start of one call of ``read`` to the start of the next, s.
        name: name of the source in messages.

    Raises:
        ValueError: if a reading belongs to a channel that is not in ``channels``.
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
        self._readings = sorted(readings, key=_time_s)
        self.interval_s = interval_s
        self.name = name
        self._played = 0
        self._is_open = False
        offered = set(channels)
        for reading in self._readings:
            if reading.channel not in offered:
                what = f"{reading.channel.quantity} of {reading.channel.device.key}"
                raise ValueError(
                    f"a reading at t_s={reading.t_s} has a channel that the source does not "
                    f"have: {what}; list it in channels="
                )

    @classmethod
    def of_file(cls, clock: Clock, path: Path) -> Self:
        """Return a source that replays a file of raw readings.

        The setting ``EnergyConfig(raw_readings=True)`` records such a file. Readings are moved in
        time so that the recorded attempt starts at the time of this call.

        Raises:
            JournalError: if the file is not a recording of readings, or has a format that is
                newer than this package.
        """
        start_s = clock.monotonic_s()
        channels, readings = recording.read(path)
        moved = [replace(reading, t_s=start_s + reading.t_s) for reading in readings]
        return cls(clock, channels, moved, name=f"replay of {path.name}")

    def open(self) -> Sequence[Channel]:
        """Return the channels; always succeeds."""
        self._is_open = True
        return self._channels

    def read(self) -> Sequence[Reading]:
        """Return the readings up to the present time that no earlier call has returned.

        Raises:
            SourceLost: if the source is not open.
        """
        if not self._is_open:
            raise SourceLost(f"{self.name} is not open; call open() first")
        now_s = self._clock.monotonic_s()
        start, self._played = self._played, bisect_right(self._readings, now_s, key=_time_s)
        return self._readings[start : self._played]

    def close(self) -> None:
        """See ``Source.close``."""
        self._is_open = False
