"""Defines the protocol of sources: open, read, close."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from energy_callbacks.core.records import Channel, Reading
from energy_callbacks.core.settings.checks import check_methods


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


def check_sources(sources: object) -> None:
    """Check the argument ``sources`` of a meter.

    Raises:
        TypeError: if it is no list, or if a source lacks a method.
        ValueError: if the interval of a source is not a number above 0.
    """
    advice = "leave sources out for the sensors of this machine"
    if not isinstance(sources, list | tuple):
        raise TypeError(f"sources must be a list, got {sources!r}; {advice}")
    for source in sources:
        check_methods("a source", source, ("open", "read", "close"), advice)
        interval_s = getattr(source, "interval_s", None)
        if not isinstance(interval_s, int | float) or not interval_s > 0.0:
            raise ValueError(
                "interval_s of a source must be a number of seconds above 0, got "
                f"{interval_s!r} of {type(source).__name__}; such as 0.1"
            )


@runtime_checkable
class FinishingSource(Source, Protocol):
    """A source whose ``read`` may leave some of the available values to later calls."""

    def finish(self) -> Sequence[Reading]:
        """Return all new values up to now; called instead of the last ``read``."""
        ...


@runtime_checkable
class PromptSource(Source, Protocol):
    """A source that returns values only when they are due, and can also be read in between."""

    def read_now(self) -> Sequence[Reading]:
        """Return the new values of power up to now, and the other values that are due."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveredSources:
    """The sources that a run reads, and the sensors that are not read.

    Attributes:
        sources: sources to open and read.
        unavailable: (name, reason, what the user can do) for each sensor that is not read.
        since_s: monotonic time from which the energies of the sources count; minus infinity if they
            count from the start of the run.
    """

    sources: tuple[Source, ...] = ()
    unavailable: tuple[tuple[str, str, str], ...] = ()
    since_s: float = -math.inf


@runtime_checkable
class FindingSource(Source, Protocol):
    """A source that finds other sources during the run."""

    def found(self) -> DiscoveredSources:
        """Return what ``read`` has found; called after every call of ``read`` or ``finish``."""
        ...
