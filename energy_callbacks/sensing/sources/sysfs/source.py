"""Reads one device of a family whose sensors are files (``family``)."""

import errno
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Final

from energy_callbacks.core.errors import ReadingMissed, SourceLost, SourceUnavailable
from energy_callbacks.core.records import Channel, Device, Reading
from energy_callbacks.sensing.clock import PUNCTUAL_S, Clock
from energy_callbacks.sensing.schedule import BEAT_S, next_reading_s, until_reading_s
from energy_callbacks.sensing.sources.sysfs.counter import CounterUnchanged
from energy_callbacks.sensing.sources.sysfs.family import Family, FileSensor, FoundDevice
from energy_callbacks.sensing.sources.sysfs.open_files import OpenFiles
from energy_callbacks.sensing.sources.sysfs.open_sensors import POLL_S, Opening, OpenSensor

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
_METERING: Final = ("power", "energy")
# Errors of files whose device is gone. Linux returns ENODEV for files of sysfs.
_GONE: Final = (errno.ENODEV, errno.ENXIO)


class SysfsSource:
    """Reads all quantities that a device has files for.

    Power and energy are read in each call, the other quantities at longer intervals. Energy counts
    from the first reading. After a reset of its counter, it counts from 0 again. The time of the
    reset then has no energy, because a counter that decreases has none (``EnergyCurve``).

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
        self._sensors: tuple[OpenSensor, ...] = ()
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
        sensors = tuple(opening.sensors(self._found.sensors or self._family.sensors).values())
        is_metering = any(one.row.quantity in _METERING for one in sensors)
        if not is_metering and not (sensors and self._found.energy_pci):
            self.close()
            raise self._unavailable(opening)
        device = self._device(sensors, opening)
        for one in sensors:
            one.channel = replace(one.channel, device=device)
        self._sensors = sensors
        powers = (one.row for one in sensors if one.row.quantity == "power")
        self._poll_s = next(map(_poll_s, powers), BEAT_S)
        return [one.channel for one in sensors]

    def _unavailable(self, opening: Opening) -> SourceUnavailable:
        for quantity, path in opening.forbidden.items():
            if quantity in _METERING:
                reason = f"cannot read {path}: permission denied"
                return SourceUnavailable(reason, self._family.permission_fix)
        what = f"{self._found.device.name} reports neither power nor energy in {self._found.folder}"
        return SourceUnavailable("; ".join((what, *opening.empty)), self._family.absence_fix)

    def _device(self, sensors: Sequence[OpenSensor], opening: Opening) -> Device:
        """Return the device with the notes of its sensors and with its power limit."""
        device = self._found.device
        notes = [one.row.note for one in sensors if one.row.note]
        notes += [f"cannot read {path}: permission denied" for path in opening.forbidden.values()]
        limit_w = device.limit_w
        for one in sensors:
            if one.row.quantity == "power_limit":
                with suppress(OSError, ReadingMissed):
                    limit_w = one.read(self._files).value
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
        self._files.forget()
        readings: list[Reading] = []
        missed: list[str] = []
        for one in self._sensors:
            if self._read_s >= one.due_s - PUNCTUAL_S:
                self._read_one(one, readings, missed)
        self._has_energy = any(one.channel.quantity == "energy" for one in readings)
        if missed and not readings:
            raise ReadingMissed("; ".join(missed))
        return readings

    def _read_one(self, one: OpenSensor, readings: list[Reading], missed: list[str]) -> None:
        """Append the reading of a sensor, or the message of its failure."""
        one.due_s = _next_s(one.row, self._read_s)
        try:
            readings.append(one.read(self._files))
        except CounterUnchanged:
            pass
        except (OSError, ReadingMissed) as error:
            if isinstance(error, OSError) and error.errno in _GONE:
                raise SourceLost(f"{self.name} is gone: {one.path}: {error}") from error
            missed.append(f"{one.path}: {error}")

    def remarks(self) -> Sequence[str]:
        """See ``RemarkingSource``."""
        return [
            f"the counter {one.path} restarted at the end of its range "
            f"{one.counter.wraps} {'time' if one.counter.wraps == 1 else 'times'}; nothing is lost"
            for one in self._sensors
            if one.counter is not None and one.counter.wraps
        ]

    def close(self) -> None:
        """See ``Source.close``."""
        self._sensors = ()
        self._files.close()


def _next_s(row: FileSensor, now_s: float) -> float:
    """Return the time of the next reading of a sensor that is read now.

    Slow sensors of power are left out of some quick readings: a reading may call the firmware.
    """
    if row.quantity == "power":
        return now_s + min(row.period_s or 0.0, BEAT_S) / 2.0
    if row.quantity == "energy":
        return now_s
    is_rare = row.kind == "counter" or row.quantity == "power_limit"
    return next_reading_s(now_s, _RARE_BEATS if is_rare else _GAUGE_BEATS)


def _poll_s(power: FileSensor) -> float:
    """Return the mean time between two readings of a sensor of power, s."""
    return max(power.period_s or POLL_S, _SHORTEST_POLL_S)
