"""Samples of cards from a log, kept as plain numbers."""

import math
from array import array
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from energy_callbacks.core.errors import JournalError
from energy_callbacks.importers.trapezoid import Array
from energy_callbacks.importers.values import number
from energy_callbacks.sensing.estimation.power_intervals import MOST_POWER_W

MOST_SAMPLES: Final = 3_000_000
"""Of one log, all devices together: four days of eight cards, a sample a second. Their report takes
a minute and a half and 1 GB."""
MOST_DEVICES: Final = 1024
_GAUGES: Final = ("utilisation", "memory_used_bytes", "temperature_c", "clock_hz")


@dataclass(slots=True, kw_only=True)
class DeviceSamples:
    """One device.

    Attributes:
        unusable: samples whose power is missing, below zero or above what a device can draw.
        limit_w: of its power; ``None`` if not known.
    """

    key: str
    kind: str = "gpu"
    name: str = "GPU"
    index: int | None = None
    uuid: str | None = None
    limit_w: float | None = None
    memory_bytes: int | None = None
    unusable: int = 0
    t_s: "array[float]" = field(default_factory=lambda: array("d"))
    power_w: "array[float]" = field(default_factory=lambda: array("d"))
    gauges: dict[str, "array[float]"] = field(
        default_factory=lambda: {name: array("d") for name in _GAUGES}
    )

    def column(self, name: str) -> Array:
        """A gauge by its name, NaN if it is not known, (n,)."""
        return np.asarray(self.gauges[name])

    @property
    def has_power(self) -> bool:
        """Whether any sample has a power."""
        return self.unusable < len(self.t_s)


class Samples:
    """Takes in samples in the order of the file.

    Args:
        path: of the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.devices: dict[str, DeviceSamples] = {}
        self._count = 0

    @property
    def end_s(self) -> float:
        """Time of the last one."""
        return max((one.t_s[-1] for one in self.devices.values()), default=0.0)

    def of(self, key: str) -> DeviceSamples:
        """The device of that key, new if there was none.

        Raises:
            JournalError: for more devices than any machine has.
        """
        if key not in self.devices:
            if len(self.devices) >= MOST_DEVICES:
                raise JournalError(
                    f"{self._path} holds more than {MOST_DEVICES} devices; split it by device"
                )
            self.devices[key] = DeviceSamples(key=key)
        return self.devices[key]

    def add(
        self,
        key: str,
        t_s: float,
        power: Any,
        *,
        zero_is_known: bool = True,
        utilisation: float | None = None,
        memory_used_bytes: float | None = None,
        temperature_c: float | None = None,
        clock_hz: float | None = None,
    ) -> DeviceSamples:
        """Take in one sample.

        Args:
            key: of the device.
            t_s: since the log began, never falling.
            power: in W as the log says it; what is no power is counted and left out.
            zero_is_known: whether 0 W is a reading; else it is how the log says that it has none.
            utilisation: share of the time in which it worked.
            memory_used_bytes: on the device.
            temperature_c: of the chip.
            clock_hz: clock of the multiprocessors.

        Raises:
            JournalError: for more samples or devices than are taken.
        """
        self._count += 1
        if self._count > MOST_SAMPLES:
            raise JournalError(
                f"{self._path} holds more than {MOST_SAMPLES} samples; "
                "split it and report the parts"
            )
        device = self.of(key)
        power_w = number(power)
        is_power = power_w is not None and 0.0 <= power_w <= MOST_POWER_W
        if not is_power or (power_w == 0.0 and not zero_is_known):
            power_w = None
            device.unusable += 1
        device.t_s.append(t_s)
        device.power_w.append(math.nan if power_w is None else power_w)
        gauges = (utilisation, memory_used_bytes, temperature_c, clock_hz)
        for column, value in zip(device.gauges.values(), gauges, strict=True):
            column.append(math.nan if value is None else value)
        return device
