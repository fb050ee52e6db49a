"""Reads the memory of this process and its descendants from the operating system."""

import math
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from energy_callbacks.core.errors import ReadingMissed, SourceUnavailable
from energy_callbacks.core.records import Channel, Device, Reading, Sensor
from energy_callbacks.sensing.clock import Clock
from energy_callbacks.sensing.schedule import until_reading_s

if TYPE_CHECKING:
    import psutil

# Interval at which the child processes are listed, s. For the list psutil reads every process of
# the machine, which takes 1.3 ms for 80 processes.
_LIST_INTERVAL_S: Final = 10.0
# Resident set sizes are summed, although proportional set sizes would count shared pages only once.
# To compute proportional sizes the kernel walks all pages of a process and blocks its page faults,
# which slows down a training that uses 100 GB.
_NOTES = (
    "upper bound: pages that forked workers share with their parent count for each of them",
    "includes ranks that this process has started",
)


class HostMemorySource:
    """Reports the resident memory of this process and its descendants, such as loader workers.

    Args:
        clock: clock that gives the times of the readings.
        only_descendants: whether to leave out this process itself, because it only starts the
            process that is measured.
    """

    name = "host memory"

    def __init__(self, clock: Clock, *, only_descendants: bool = False) -> None:
        self._clock = clock
        self._only_descendants = only_descendants
        self._process: psutil.Process | None = None
        self._children: list[psutil.Process] = []
        self._list_s = -math.inf
        self._read_s = clock.monotonic_s()
        self._channel = Channel(
            device=Device(
                key="process", kind="process", scope=None, name="this process", notes=_NOTES
            ),
            quantity="rss",
            kind="gauge",
            sensor=Sensor(name="psutil resident set size of the process and its children"),
        )

    @property
    def interval_s(self) -> float:
        """Seconds from the last ``read`` to the second common reading moment (``schedule``)."""
        return until_reading_s(self._read_s, beats=2)

    def open(self) -> Sequence[Channel]:
        """Open this process for reading, and return the channel of its memory.

        Raises:
            SourceUnavailable: if the operating system does not report the memory of this process.
        """
        import psutil

        try:
            self._process = psutil.Process()
            self._process.memory_info()
        except (psutil.Error, OSError) as error:
            raise SourceUnavailable(
                f"memory of this process cannot be read: {error}", "mount /proc"
            ) from error
        return [self._channel]

    def read(self) -> Sequence[Reading]:
        """Return one reading: the resident bytes, summed over the processes.

        Raises:
            ReadingMissed: if this process or its list of children cannot be read, or the source is
                not open.
        """
        import psutil

        if self._process is None:
            raise ReadingMissed("host memory is not open; call open() first")
        self._read_s = self._clock.monotonic_s()
        try:
            rss_bytes = 0 if self._only_descendants else self._process.memory_info().rss
            now_s = self._clock.monotonic_s()
            if now_s >= self._list_s:
                self._children = self._process.children(recursive=True) if _is_parent() else []
                # A process that only waits for its children can list them at every reading.
                self._list_s = now_s + (0.0 if self._only_descendants else _LIST_INTERVAL_S)
        except (psutil.Error, OSError) as error:
            raise ReadingMissed(f"memory of this process could not be read: {error}") from error
        rss_bytes += sum(_rss_bytes(child) for child in self._children)
        return [Reading(self._channel, now_s, float(rss_bytes))]

    def close(self) -> None:
        """See ``Source.close``."""
        self._process = None


def _is_parent() -> bool:
    """Return whether this process has children, without reading other processes."""
    if sys.platform != "linux":
        return True  # psutil then lists the children at each call
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)  # reaps no child
    except ChildProcessError:
        return False
    return True


def _rss_bytes(child: "psutil.Process") -> int:
    """Return the resident bytes of a child; 0 if it has ended or is not accessible."""
    import psutil

    try:
        return int(child.memory_info().rss)
    except psutil.Error:
        return 0
