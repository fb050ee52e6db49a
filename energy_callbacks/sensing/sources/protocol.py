"""The protocol of sensors: open, read, close."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from energy_callbacks.core.records import Channel, Reading


class Source(Protocol):
    """One sensor, read on a thread of its own.

    A source fails in exactly three ways: ``open`` raises ``SourceUnavailable``; ``read`` raises
    ``ReadingMissed`` (try again) or ``SourceLost`` (stop asking).
    It is picklable until it is opened: everything heavy happens in ``open``.
    """

    @property
    def name(self) -> str:
        """For people: ``NVML GPU-4e81...``, ``RAPL package-0``."""
        ...

    @property
    def interval_s(self) -> float:
        """How often ``read`` wants to be called."""
        ...

    def open(self) -> Sequence[Channel]:
        """Connect to the sensor and say what it offers.

        Raises:
            SourceUnavailable: with the reason and what the user can do.
        """
        ...

    def read(self) -> Sequence[Reading]:
        """All values that are new since the last call, in time order for each channel.

        Raises:
            ReadingMissed: this call failed, the next may succeed.
            SourceLost: the sensor is gone.
        """
        ...

    def close(self) -> None:
        """Release the sensor; safe to call twice, never raises."""
        ...


@runtime_checkable
class FinishingSource(Source, Protocol):
    """A source that does not read everything each time."""

    def finish(self) -> Sequence[Reading]:
        """Called in the place of the last ``read``: everything up to now."""
        ...


@runtime_checkable
class RemarkingSource(Source, Protocol):
    """A source that mends what its sensor does amiss, and says so."""

    def remarks(self) -> Sequence[str]:
        """What was mended since ``open``: no figure is wrong by it."""
        ...


def remarks(source: Source) -> Sequence[str]:
    """What the source has mended, before it is closed."""
    return source.remarks() if isinstance(source, RemarkingSource) else ()


def last_read(source: Source) -> Sequence[Reading]:
    """Everything up to now, before the source is closed; raises as ``Source.read`` does."""
    return source.finish() if isinstance(source, FinishingSource) else source.read()
