"""A source that plays the readings of a simulated card in virtual time."""

from collections.abc import Sequence
from typing import Final

from energy_callbacks.core.records import Channel, Reading
from energy_callbacks.sensing.clock import Clock
from tests.benchmarks.common.sensor_models import Stream

# A reading is delivered this long after its time, s: the newest sample in an H200's buffer is 3 to
# 16 ms old (docs/h200.md).
_AGE_S: Final = 0.003


class ModelSource:
    """Delivers the readings of all streams up to the present moment.

    Args:
        clock: clock that gives the present moment.
        streams: all readings, computed in advance.
    """

    name = "simulated card"
    interval_s = 0.4

    def __init__(self, clock: Clock, streams: Sequence[Stream]) -> None:
        self._clock = clock
        self._streams = streams
        self._until_s = -float("inf")

    def open(self) -> Sequence[Channel]:
        """Return the channels of the card."""
        return [stream.channel for stream in self._streams]

    def read(self) -> Sequence[Reading]:
        """Return the readings since the last call, stream by stream."""
        before_s, self._until_s = self._until_s, self._clock.monotonic_s() - _AGE_S
        parts = (stream.readings(before_s, self._until_s) for stream in self._streams)
        return [reading for part in parts for reading in part]

    def close(self) -> None:
        """Do nothing: there is nothing to release."""
