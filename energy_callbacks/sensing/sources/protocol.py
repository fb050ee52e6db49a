"""The protocol of sensors: open, read, close."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from energy_callbacks.core.records import Channel, Reading


class Source(Protocol):
    """A sensor that is read on a thread of its own.

    A source fails in exactly three ways: ``open`` raises ``SourceUnavailable``; ``read`` raises
    ``ReadingMissed`` (the next call may succeed) or ``SourceLost`` (no later call will).
    A source can be pickled until it is opened, because everything heavy happens in ``open``.
    """

    @property
    def name(self) -> str:
        """Name for messages, such as ``RAPL``."""
        ...

    @property
    def interval_s(self) -> float:
        """Seconds until the next call of ``read``."""
        ...

    def open(self) -> Sequence[Channel]:
        """Connect to the sensor and return the channels that it offers.

        Raises:
            SourceUnavailable: with the reason and what the user can do.
        """
        ...

    def read(self) -> Sequence[Reading]:
        """Return all new values since the last call, in time order for each channel.

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
    """A source whose ``read`` does not return everything that is available."""

    def finish(self) -> Sequence[Reading]:
        """Return everything up to now; called instead of the last ``read``."""
        ...


@runtime_checkable
class RemarkingSource(Source, Protocol):
    """A source that corrects faults of its sensor and reports them."""

    def remarks(self) -> Sequence[str]:
        """Return the corrections since ``open``, none of which makes a figure wrong."""
        ...
