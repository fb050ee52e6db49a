"""Collects the samples of a log by device, as plain numbers."""

import math
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from energy_callbacks.core.errors import JournalError
from energy_callbacks.core.records import Device, Scope
from energy_callbacks.importers import values
from energy_callbacks.importers.files import Damage
from energy_callbacks.importers.log_clock import LogClock
from energy_callbacks.importers.protocol import Log
from energy_callbacks.sensing.estimation.power_intervals import MOST_POWER_W

MOST_SAMPLES: Final = 3_000_000
"""Maximum number of samples in one log, summed over all devices: about four days of eight cards at
1 sample per second. Computing the report of a log of this size takes 90 s and 1 GB of memory."""
MOST_DEVICES: Final = 1024
COLUMNS: Final = (
    "t_s", "power_w", "utilisation", "memory_used_bytes", "temperature_c", "clock_hz"
)  # fmt: skip
"""Names of the values that are stored for each sample; unknown values are NaN."""
_SCOPES: Final[dict[str, Scope]] = {"gpu": "gpu", "cpu": "host"}
Names = tuple[str, ...]
Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Names of the fields of a sample in a log format.

    An attribute of type ``Names`` has the possible names of one field; the first name that a sample
    has is read.

    Attributes:
        power: power in W.
        utilisation: utilisation in per cent.
        memory_used: memory in use on the device, in the unit that ``memory_bytes`` expects.
        temperature: temperature of the chip in degrees Celsius.
        clock: clock frequency of the multiprocessors in MHz.
        index: number of the device; the default is the number in the key of the device.
        name: product name.
        uuid: unique identifier of the device.
        limit: power limit in W.
        memory_total: total memory of the device, in the same unit as ``memory_used``.
        memory_bytes: converts ``memory_used`` and ``memory_total`` to bytes.
        zero_is_known: ``True`` if 0 W is a real reading, ``False`` if it means unknown power.
    """

    power: Names = ()
    utilisation: Names = ()
    memory_used: Names = ()
    temperature: Names = ()
    clock: Names = ()
    index: Names = ()
    name: Names = ()
    uuid: Names = ()
    limit: Names = ()
    memory_total: Names = ()
    memory_bytes: Callable[[Any], float | None] = values.size_from_mebibytes
    zero_is_known: bool = True


@dataclass(slots=True)
class DeviceSamples:
    """Samples of one device.

    Attributes:
        device: properties of the device, from its first sample.
        unusable: number of samples without usable power; see ``Samples.add``.
        values: values of all samples in one flat array, each sample in the order of ``COLUMNS``.
    """

    device: Device
    unusable: int = 0
    values: "array[float]" = field(default_factory=lambda: array("d"))

    def __len__(self) -> int:
        return len(self.values) // len(COLUMNS)

    def column(self, name: str) -> Array:
        """Return the values of one of ``COLUMNS`` in all samples, (n,)."""
        return np.asarray(self.values).reshape(-1, len(COLUMNS))[:, COLUMNS.index(name)]

    @property
    def has_power(self) -> bool:
        """Whether any sample has usable power."""
        return self.unusable < len(self)


class Samples:
    """Collects samples in the order of the file.

    Args:
        log: the file.
        layout: names of the fields of a sample.
    """

    def __init__(self, log: Log, layout: Layout) -> None:
        self.devices: dict[str, DeviceSamples] = {}
        self.clock = LogClock()
        self.damage = Damage()
        self._path = log.path
        self._layout = layout
        self._count = 0

    @property
    def end_s(self) -> float:
        """Time of the last sample, in seconds since the log's first moment; 0.0 without samples."""
        return max((one.values[-len(COLUMNS)] for one in self.devices.values()), default=0.0)

    def t_s(self, moment: values.Moment | None) -> float | None:
        """Return the seconds from the log's first moment to ``moment``.

        ``None`` stands for a time that could not be parsed: it is counted as damage, and the result
        is ``None``.
        """
        if moment is None:
            self.damage.places += 1
            return None
        return self.clock.t_s(moment)

    def add(self, key: str, t_s: float, row: Mapping[str, Any]) -> None:
        """Add one sample.

        Args:
            key: key of the device: ``gpu`` or ``cpu``, and a number.
            t_s: seconds since the first moment of the log, ascending.
            row: fields of the sample by name. Power is counted as unusable and stored as NaN if it
                is not a number, is negative, is more than a device can draw, or is 0 W and
                ``zero_is_known`` is ``False``.

        Raises:
            JournalError: for more samples or devices than the maximum.
        """
        self._count += 1
        if self._count > MOST_SAMPLES:
            raise JournalError(
                f"{self._path} contains more than {MOST_SAMPLES} samples; split it and make a "
                "report of each part"
            )
        if key not in self.devices:
            self.devices[key] = DeviceSamples(self._device(key, row))
        samples, layout = self.devices[key], self._layout
        power_w = values.number(_first(row, layout.power))
        is_power = power_w is not None and 0.0 <= power_w <= MOST_POWER_W
        if not is_power or (power_w == 0.0 and not layout.zero_is_known):
            power_w = None
            samples.unusable += 1
        gauges = (
            values.share(_first(row, layout.utilisation)),
            layout.memory_bytes(_first(row, layout.memory_used)),
            values.celsius(_first(row, layout.temperature)),
            values.clock_from_megahertz(_first(row, layout.clock)),
        )
        samples.values.append(t_s)
        samples.values.extend([math.nan if one is None else one for one in (power_w, *gauges)])

    def _device(self, key: str, row: Mapping[str, Any]) -> Device:
        if len(self.devices) >= MOST_DEVICES:
            raise JournalError(
                f"{self._path} contains more than {MOST_DEVICES} devices; split it by device"
            )
        layout, kind = self._layout, key[:3]
        device_number = values.index(_first(row, layout.index))
        memory_bytes = layout.memory_bytes(_first(row, layout.memory_total))
        return Device(
            key=key,
            kind=kind,
            scope=_SCOPES[kind],
            name=values.short_text(_first(row, layout.name)) or kind.upper(),
            index=int(key[3:]) if device_number is None else device_number,
            uuid=values.short_text(_first(row, layout.uuid)),
            limit_w=values.above_0(_first(row, layout.limit)),
            memory_bytes=round(memory_bytes) if memory_bytes else None,
        )


def _first(row: Mapping[str, Any], names: Names) -> Any:
    for name in names:
        if name in row:
            return row[name]
    return None
