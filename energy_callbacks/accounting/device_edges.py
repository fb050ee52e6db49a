"""Determines when the GPU reached each change of phase, from CUDA events.

The host queues work and goes on, so the GPU enters a phase later than the host. The energy of
phases that repeat needs the GPU's moments (``phase_energy``).
"""

import math
from collections import deque
from typing import TYPE_CHECKING, Final

from energy_callbacks.core.records import Device

if TYPE_CHECKING:
    from energy_callbacks.sensing.frameworks.work_ends import WorkEnd, WorkEnds

# A moment that is known less accurately, s, counts as not measured: the finest step of the delays
# that ``edge_delays`` tries.
_MOST_ERROR_S: Final = 0.0025
# An event takes 30 to 50 us of the training thread. At most this many are recorded per second, or
# 0.2 % of the time, and this many more in all.
_EVENTS_PER_S: Final = 50.0
_MORE_EVENTS: Final = 100.0
# Changes of phase that are known at most, if nobody calls ``forget``.
_MOST_KNOWN: Final = 100_000


class DeviceEdges:
    """Measures the delays with which one GPU follows its host from phase to phase.

    Args:
        ends: measures with CUDA events.
    """

    def __init__(self, ends: "WorkEnds") -> None:
        self._ends = ends
        self._events = 0
        self._first_s: float | None = None
        self._marked: deque[tuple[float, WorkEnd | None]] = deque()
        self._known: dict[float, WorkEnd | None] = {}  # by host time; ``None``: no GPU used yet

    def mark(self, t_s: float) -> None:
        """Record an event for a change of phase now, at the monotonic time ``t_s``.

        Called on the training thread. Nothing is recorded if phases change too often.
        """
        if self._first_s is None:
            self._first_s = t_s
        if self._events > _EVENTS_PER_S * (t_s - self._first_s) + _MORE_EVENTS:
            return
        self._events += 1
        end = self._ends.mark(t_s)
        self._marked.append((t_s, end if self._ends.device_uuid else None))

    # The methods from here on run on the journal's thread.

    def settle(self) -> None:
        """Determine the moments that the GPU has reached, without waiting for others."""
        self._ends.settle()
        self._take()

    def _take(self) -> None:
        while self._marked:
            t_s, end = self._marked.popleft()
            self._known[t_s] = end
            if len(self._known) > _MOST_KNOWN:
                del self._known[next(iter(self._known))]

    def close(self) -> None:
        """Determine the moments that the GPU has reached, and release all events."""
        self._take()
        pending = [end for end in self._known.values() if end and end.end_s is None]
        self._ends.close()
        for end in pending:
            if end.error_s is None:  # the GPU reaches it after the attempt
                end.end_s, end.error_s = math.inf, 0.0

    def are_of(self, device: Device) -> bool:
        """Return whether the events are those of a device, or of a MIG instance on it."""
        uuid = self._ends.device_uuid
        names = (device.uuid or "", *device.instances)
        return uuid is not None and any(name.endswith(uuid) for name in names)

    def delay_s(self, t_s: float) -> float:
        """Return the delay of the GPU behind a change of phase of the host at ``t_s``, s.

        Infinite if the GPU has not reached it yet; NaN if it was not measured.
        """
        if t_s not in self._known:
            return math.nan
        end = self._known[t_s]
        if end is None:
            return 0.0
        if end.end_s is None:
            return math.inf
        is_measured = end.error_s is not None and end.error_s <= _MOST_ERROR_S
        return end.end_s - t_s if is_measured else math.nan

    def forget(self, until_s: float) -> None:
        """Forget changes of phase before ``until_s``."""
        for t_s in [t_s for t_s in self._known if t_s < until_s]:
            del self._known[t_s]
