"""Reads the power of a whole server from its board management controller, through ``ipmitool``."""

import re
from collections.abc import Sequence
from typing import Final

from energy_callbacks.core.errors import ReadingMissed, SourceLost, SourceUnavailable
from energy_callbacks.core.records import Channel, Device, Reading, Sensor
from energy_callbacks.sensing.clock import Clock
from energy_callbacks.sensing.scopes import NAMED_MACHINE
from energy_callbacks.sensing.sources.commands.command import Command

IPMITOOL: Final = ("ipmitool", "dcmi", "power", "reading")
# Time between two readings, s. Most controllers update the value about once per second
# (Green Metrics Tool, "PSU Energy AC - IPMI machine").
_INTERVAL_S: Final = 1.0
# Time limit of one reading, s. A controller answers within some hundred milliseconds.
_PATIENCE_S: Final = 5.0
# Bound of the relative error: assumed, because controllers do not report one.
_RELATIVE_ERROR: Final = 0.1

_POWER: Final = re.compile(r"Instantaneous power reading:\s*(\d+) Watts")
_STATE: Final = re.compile(r"Power reading state is:\s*activated")
_FIX: Final = (
    "try 'ipmitool dcmi power reading'; if it is missing, install ipmitool; if there is no "
    "/dev/ipmi0, load the kernel modules ipmi_si and ipmi_devintf; if you may not open it, the "
    "administrator can give your group access with a udev rule: "
    'KERNEL=="ipmi*", GROUP="your_group", MODE="0660"'
)
_NAME: Final = "whole machine, by its management controller (IPMI)"
_CHANNEL: Final = Channel(
    device=Device(key=NAMED_MACHINE, kind="machine", scope="machine", name=_NAME),
    quantity="power",
    kind="gauge",
    sensor=Sensor(
        name=" ".join(IPMITOOL),
        period_s=_INTERVAL_S,
        relative_error=_RELATIVE_ERROR,
        citation="DCMI specification 1.5, section 6.6.1, Get Power Reading; bound assumed",
    ),
)


class IpmiSource:
    """Reports the power of the whole server, W.

    Args:
        clock: clock that gives the times of the readings.
        command: command that replaces ``ipmitool``, for tests.
    """

    name = "IPMI"
    interval_s = _INTERVAL_S

    def __init__(self, clock: Clock, command: Sequence[str] = ()) -> None:
        self._clock = clock
        self._command = command or IPMITOOL

    def open(self) -> Sequence[Channel]:
        """Read the power once.

        Raises:
            SourceUnavailable: if the controller has no reading, or it cannot be asked.
        """
        try:
            self.read()
        except ReadingMissed as error:
            raise SourceUnavailable(str(error), _FIX) from error
        return (_CHANNEL,)

    def read(self) -> Sequence[Reading]:
        """Return the present power.

        Raises:
            ReadingMissed: if the command fails, or the controller has no reading.
        """
        before_s = self._clock.monotonic_s()
        try:
            text = Command(self._command).output(_PATIENCE_S).decode(errors="replace")
        except (SourceLost, SourceUnavailable) as error:
            raise ReadingMissed(str(error)) from error
        after_s = self._clock.monotonic_s()
        t_s, t_error_s = (before_s + after_s) / 2, (after_s - before_s) / 2
        return (Reading(_CHANNEL, t_s, power_w(text), t_error_s),)

    def close(self) -> None:
        """See ``Source.close``; no command runs between two readings."""


def power_w(text: str) -> float:
    """Return the power that a text of ``ipmitool dcmi power reading`` has, W.

    Raises:
        ReadingMissed: if it has none; 0 W, or all ones in 16 bits, mean that it is not known.

    >>> power_w("Instantaneous power reading: 220 Watts  Power reading state is: activated")
    220.0
    """
    power, state = _POWER.search(text), _STATE.search(text)
    if power is None or state is None or int(power[1]) in (0, 0xFFFF):
        raise ReadingMissed(f"the controller has no power reading: {text.strip()[:200]!r}")
    return float(power[1])
