"""Defines the protocol of sources: open, read, close."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from energy_callbacks.core.records import Channel, Reading


class Source(Protocol):
    """A sensor, or a model that replaces it; each source is read on its own thread.

    A source fails in exactly three ways: ``open`` raises ``SourceUnavailable``; ``read`` raises
    ``ReadingMissed`` (the next call may succeed) or ``SourceLost`` (the source is then closed, and
    ``open`` is called every second until it succeeds).
    A source that has not been opened can be pickled: all resources are acquired in ``open``.
    """

    @property
    def name(self) -> str:
        """Name for messages, such as ``RAPL``."""
        ...

    @property
    def interval_s(self) -> float:
        """Seconds from the start of the last ``read`` to the start of the next."""
        ...

    def open(self) -> Sequence[Channel]:
        """Connect to the sensor and return the channels that it offers.

        Raises:
            SourceUnavailable: if the sensor cannot be used; states why and what the user can do.
        """
        ...

    def read(self) -> Sequence[Reading]:
        """Return the new values since the last call, in time order for each channel.

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
    """A source whose ``read`` may leave some of the available values to later calls."""

    def finish(self) -> Sequence[Reading]:
        """Return all new values up to now; called instead of the last ``read``."""
        ...


@runtime_checkable
class QuickSource(Source, Protocol):
    """A source whose readings cost microseconds, so that it can be read often if phases are short.

    After a change of phase, it is read every ``quick_interval_s`` seconds (see ``schedule``).
    """

    @property
    def quick_interval_s(self) -> float:
        """Seconds between two readings after a change of phase, less than ``interval_s``."""
        ...


@runtime_checkable
class RemarkingSource(Source, Protocol):
    """A source that corrects faults of its sensor and reports them."""

    def remarks(self) -> Sequence[str]:
        """Return messages about faults corrected since ``open``; such faults affect no figure."""
        ...
