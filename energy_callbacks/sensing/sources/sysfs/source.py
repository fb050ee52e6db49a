"""Reads one device of a family whose sensors are files (``family``)."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Final

from energy_callbacks.core.errors import ReadingMissed, SourceLost, SourceUnavailable
from energy_callbacks.core.records import Channel, Device, Quantity, Reading
from energy_callbacks.sensing.clock import PUNCTUAL_S, Clock
from energy_callbacks.sensing.schedule import BEAT_S, next_reading_s, until_reading_s
from energy_callbacks.sensing.sources.sysfs.counter import wrap_remarks
from energy_callbacks.sensing.sources.sysfs.family import DeviceSensor, Family, FoundDevice
from energy_callbacks.sensing.sources.sysfs.open_files import OpenFiles
from energy_callbacks.sensing.sources.sysfs.open_sensors import Opening
from energy_callbacks.sensing.sources.sysfs.read_all import read_all

# Time between two readings after a change of phase, s; as for RAPL.
_QUICK_S: Final = 0.05
# Intervals in multiples of ``schedule.BEAT_S``, as for NVIDIA's cards (``nvidia.gauges``): of
# gauges, and of limits and counters, which lose nothing between two readings.
_GAUGE_BEATS: Final = 2
_RARE_BEATS: Final = 6
# Least mean time between two readings of power without energy, s. The time varies randomly in a
# range of _SWING times the mean, so that readings do not keep step with the training.
_SHORTEST_POLL_S: Final = 0.05
_SWING: Final = 0.5
# Quantities that a device must have.
_METERING: Final = {"power", "energy"}


class SysfsSource:
    """Reads all quantities that a device has files for.

    Power and energy are read in each call, the other quantities at longer intervals. Energy counts
    from the first reading. After a reset of its counter, it continues at a lower value. The time of
    the reset then has no energy, because a counter that decreases has none (``EnergyCurve``).

    Args:
        clock: clock that gives the times of the readings.
        family: family of the device.
        found: the device.
    """

    def __init__(self, clock: Clock, family: Family, found: FoundDevice) -> None:
        self.name = f"{family.name} {found.device.key}"
        self._clock = clock
        self._family = family
        self._found = found
        self._files = OpenFiles(clock)
        self._sensors: list[DeviceSensor] = []
        self._due_s: dict[Quantity, float] = {}
        self._read_s = clock.monotonic_s()
        self._poll_s = BEAT_S
        self._has_energy = False
        self._random = Random(0)  # noqa: S311 - no secret

    @property
    def interval_s(self) -> float:
        """Seconds from the last ``read`` to the next, at most to the next common reading moment.

        A counter of energy misses nothing in between. Without it, or while it fails, power is read
        as often as it changes.
        """
        until_s = until_reading_s(self._read_s)
        if self._has_energy or self._poll_s >= BEAT_S:
            return until_s
        return min(until_s, self._poll_s * (1.0 + _SWING * (self._random.random() - 0.5)))

    @property
    def quick_interval_s(self) -> float:
        """See ``QuickSource``."""
        return _QUICK_S

    def open(self) -> Sequence[Channel]:
        """Open the files of all quantities that have a value, and return their channels.

        Raises:
            SourceUnavailable: if neither power nor energy can be read, unless another GPU measures
                them for this one.
        """
        self.close()
        opening = Opening(self._found, self._files)
        sensors: list[DeviceSensor] = list(opening.sensors(self._family.sensors))
        if self._family.library is not None:
            known: set[Quantity] = {one.channel.quantity for one in sensors}
            sensors += self._family.library(self._clock, self._found, known)
        channels = {one.channel.quantity: one.channel for one in sensors}
        if not channels.keys() & _METERING and not (sensors and self._found.energy_pci):
            self.close()
            raise self._unavailable(opening)
        device = self._device(sensors, opening)
        for one in sensors:
            one.channel = replace(one.channel, device=device)
        self._sensors = sensors
        power = channels.get("power")
        self._poll_s = max(_period_s(power), _SHORTEST_POLL_S) if power else BEAT_S
        return [one.channel for one in sensors]

    def _unavailable(self, opening: Opening) -> SourceUnavailable:
        for quantity, path in opening.forbidden.items():
            if quantity in _METERING:
                reason = f"cannot read {path}: permission denied"
                return SourceUnavailable(reason, self._family.permission_fix)
        what = f"{self._found.device.name} reports neither power nor energy in {self._found.folder}"
        return SourceUnavailable("; ".join((what, *opening.empty)), self._family.absence_fix)

    def _device(self, sensors: Sequence[DeviceSensor], opening: Opening) -> Device:
        """Return the device with its power limit, and with notes about files without permission."""
        device = self._found.device
        notes = (f"cannot read {path}: permission denied" for path in opening.forbidden.values())
        limit_w = device.limit_w
        for one in sensors:
            if one.channel.quantity == "power_limit":
                with suppress(OSError, ReadingMissed):
                    limit_w = one.read().value
        return replace(device, notes=(*device.notes, *notes), limit_w=limit_w)

    def read(self) -> Sequence[Reading]:
        """Return the readings that are due; files that fail are left out.

        Raises:
            ReadingMissed: if all files that were read fail.
            SourceLost: if the device is gone.
        """
        if not self._sensors:
            raise ReadingMissed(f"{self.name} is not open; call open() first")
        self._read_s = self._clock.monotonic_s()
        if not self._found.folder.exists():
            raise SourceLost(f"{self.name} is gone: {self._found.folder} does not exist any more")
        due = [
            one
            for one in self._sensors
            if self._read_s >= self._due_s.get(one.channel.quantity, 0.0) - PUNCTUAL_S
        ]
        for one in due:
            self._due_s[one.channel.quantity] = _next_s(one.channel, self._read_s)
        self._has_energy = False  # also if all sensors fail
        readings = read_all(self.name, ((_name(one), one.read) for one in due))
        self._has_energy = any(one.channel.quantity == "energy" for one in readings)
        return readings

    def remarks(self) -> Sequence[str]:
        """See ``RemarkingSource``."""
        return wrap_remarks((one.channel, one.wraps) for one in self._sensors)

    def close(self) -> None:
        """See ``Source.close``."""
        self._sensors, self._due_s = [], {}
        self._files.close()


def _name(one: DeviceSensor) -> str:
    return one.channel.sensor.name if one.channel.sensor else ""


def _period_s(channel: Channel) -> float:
    """Return the period of the sensor of a channel, s; 0 if it is not known."""
    return (channel.sensor and channel.sensor.period_s) or 0.0


def _next_s(channel: Channel, now_s: float) -> float:
    """Return the time of the next reading of a sensor that is read now.

    Slow sensors of power are left out of some quick readings: a reading may call the firmware.
    """
    if channel.quantity == "power":
        return now_s + min(_period_s(channel), BEAT_S) / 2.0
    if channel.quantity == "energy":
        return now_s
    is_rare = channel.kind == "counter" or channel.quantity == "power_limit"
    return next_reading_s(now_s, _RARE_BEATS if is_rare else _GAUGE_BEATS)
