"""The readings and the energy of one device; ``timeline.py`` holds those of all, under a lock."""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from energy_callbacks.core.records import Channel, Device, Energy, Quantity, Reading
from energy_callbacks.sensing.estimation.energy_curve import EnergyCurve
from energy_callbacks.sensing.estimation.series import TimeSeries

NOT_USED: Final = Energy(energy_j=0.0, coverage=1.0)
"""Energy of a device in a time in which the run did not use it."""

# A longer pause between two readings adds only this much to ``Track.read_s``, s. Without faults,
# every source is read at least every 1.6 s.
_PAUSE_S: Final = 2.0
# Time for which power readings are kept without corrections, s (``newest_energy``).
_RECENT_S: Final = 20.0


@dataclass(slots=True)
class Track:
    """Everything known about one device.

    Attributes:
        device: the device.
        channels: its channels, of all sources.
        curve: its cumulative energy; empty if no channel measures power or energy.
        is_metered: whether a channel measures power or energy.
        series: readings of each of its quantities except power and energy.
        newest_s: time of the newest reading of any quantity.
        read_s: total time with readings, s.
        last: time of the last reading of each quantity, and ``read_s`` at that time.
        recent: newest power readings, without corrections.
        power: raw power readings as (t_s, W) since ``follow_power``; ``None`` if not requested.
        silent_since_s: time of the first call of ``settled_s`` or ``seen_s`` while the device had
            no energy yet; ``None`` if there was no such call.
        is_lost: whether its sensor is gone.
        used_since_s: time from which the run uses the device. Earlier readings are dropped, and the
            energy before is 0.
    """

    device: Device
    channels: tuple[Channel, ...]
    curve: EnergyCurve
    is_metered: bool = False
    series: dict[Quantity, TimeSeries] = field(default_factory=dict)
    newest_s: float = -math.inf
    read_s: float = 0.0
    last: dict[Quantity, tuple[float, float]] = field(default_factory=dict)
    recent: TimeSeries = field(default_factory=lambda: TimeSeries(_RECENT_S))
    power: deque[tuple[float, float]] | None = None
    silent_since_s: float | None = None
    is_lost: bool = False
    used_since_s: float = -math.inf

    @property
    def is_silent_machine(self) -> bool:
        """Whether this is a sensor of the whole machine without energy, which sums leave out."""
        return self.device.scope == "machine" and self.curve.start_s is None

    def extend(self, readings: Sequence[Reading], keep_s: float) -> None:
        """Add readings; drop those from before the run used the device.

        Args:
            readings: finite readings, those of each channel in time order.
            keep_s: how long readings are kept, s.
        """
        readings = [reading for reading in readings if reading.t_s >= self.used_since_s]
        self.curve.add(readings)
        for reading in readings:
            quantity, t_s = reading.channel.quantity, reading.t_s
            if t_s > self.newest_s:
                self.read_s += min(t_s - self.newest_s, _PAUSE_S)
                self.newest_s = t_s
            self.last[quantity] = (t_s, self.read_s)
            if quantity == "power":
                self.recent.append(t_s, reading.value)
                if self.power is not None:
                    self.power.append((t_s, reading.value))
            if quantity in ("power", "energy"):
                continue  # part of the curve
            series = self.series.get(quantity)
            if series is None:
                series = self.series[quantity] = TimeSeries(keep_s)
            series.append(t_s, reading.value)

    def energy(self, start_s: float, end_s: float) -> Energy:
        """Return the energy between two moments; see ``Timeline.energy``."""
        counted_s = self._counted_from(start_s, end_s)
        if counted_s == end_s:
            return NOT_USED
        found = self.curve.energy(counted_s, end_s)
        if counted_s == start_s or found.energy_j is None:
            return found
        used_share = (end_s - counted_s) / (end_s - start_s)
        return replace(found, coverage=_whole_coverage(found.coverage, used_share))

    def seen(self, start_s: float, end_s: float) -> tuple[float | None, float]:
        """Return the joules and the coverage as ``energy`` does, without computing errors."""
        counted_s = self._counted_from(start_s, end_s)
        if counted_s == end_s:
            return NOT_USED.energy_j, NOT_USED.coverage
        energy_j, coverage = self.curve.seen(counted_s, end_s)
        return energy_j, _whole_coverage(coverage, (end_s - counted_s) / (end_s - start_s))

    def _counted_from(self, start_s: float, end_s: float) -> float:
        """Return the start of the part of a time span in which the run uses the device."""
        return min(max(start_s, self.used_since_s), end_s)


def _whole_coverage(coverage: float, used_share: float) -> float:
    """Return the coverage of a time span, of which the device was in use for ``used_share``."""
    return coverage if used_share == 1.0 else 1.0 - used_share * (1.0 - coverage)
