"""Reads the energy of Apple silicon: CPU, GPU and Neural Engine, from Apple's ``powermetrics``.

``powermetrics`` needs root. It is run through ``sudo -n``, which never asks for a password. Its
value ``combined_power`` is the sum of the three parts. It contains neither memory, display nor
storage, so there is no sensor of the whole machine. The same counters are in IOReport, which is not
documented by Apple and is not read.
"""

import plistlib
from collections.abc import Mapping, Sequence
from typing import Any, Final
from xml.parsers import expat

from energy_callbacks.core.errors import ReadingMissed, SourceLost, SourceUnavailable
from energy_callbacks.core.records import Channel, Device, Kind, Quantity, Reading, Sensor
from energy_callbacks.core.units import joules_from_millijoules, seconds_from_nanoseconds
from energy_callbacks.sensing.clock import Clock
from energy_callbacks.sensing.schedule import until_reading_s
from energy_callbacks.sensing.sources.commands.command import Command

_INTERVAL_S: Final = 0.5
POWERMETRICS: Final = (
    "sudo", "-n", "powermetrics", "-f", "plist", "-b", "1", "-i", f"{_INTERVAL_S * 1e3:.0f}",
    "--samplers", "cpu_power,gpu_power,ane_power",
)  # fmt: skip
# Each document ends with this. NUL bytes separate the documents (man page of powermetrics, -f).
_END: Final = b"</plist>"
# Time limit for the first document, s.
_PATIENCE_S: Final = 5.0
# Time from the end of a sample to the moment when its document can be read, s: assumed.
_DELAY_S: Final = 0.05
# If a sample had ended longer ago than this, s, the next one could be read as well.
_LATEST_S: Final = 2.0 * _INTERVAL_S
# Apple states no error: "estimated power values" that "should not be used for any comparison
# between devices" (man page of powermetrics). The bound is assumed.
_RELATIVE_ERROR: Final = 0.2
_CITATION: Final = "man page of powermetrics: values are estimated by macOS; bound assumed"
_FIX: Final = (
    "powermetrics needs root: the administrator can add the line 'your_name ALL=(root) NOPASSWD: "
    "/usr/bin/powermetrics' with 'sudo visudo -f /etc/sudoers.d/powermetrics'"
)


def _channel(
    field: str, device: Device, quantity: Quantity = "energy", kind: Kind = "counter"
) -> Channel:
    error = _RELATIVE_ERROR if quantity == "energy" else 0.0
    name = f"powermetrics {field}"
    sensor = Sensor(name=name, period_s=_INTERVAL_S, relative_error=error, citation=_CITATION)
    return Channel(device=device, quantity=quantity, kind=kind, sensor=sensor)


_GPU: Final = Device(
    key="gpu0", kind="gpu", scope="gpu", name="Apple GPU", index=0,
    notes=("integrated GPU, used by all programs; its memory is that of the machine",),
)  # fmt: skip
_CPU: Final = Device(key="cpu0", kind="cpu", scope="host", name="Apple CPU", index=0)
_NPU: Final = Device(key="npu0", kind="npu", scope="host", name="Apple Neural Engine")
# Channels by field of a document. Chips may lack a field.
_CHANNELS: Final[Mapping[str, Channel]] = {
    "cpu_energy": _channel("cpu_energy", _CPU),
    "gpu_energy": _channel("gpu_energy", _GPU),
    "ane_energy": _channel("ane_energy", _NPU),
    "idle_ratio": _channel("idle_ratio", _GPU, "utilisation", "gauge"),
}


class PowermetricsSource:
    """Reports the energy of CPU, GPU and Neural Engine since ``open``, J.

    Args:
        clock: clock that gives the times of the readings.
        command: command that replaces ``powermetrics``, for tests.
    """

    name = "powermetrics"

    def __init__(self, clock: Clock, command: Sequence[str] = ()) -> None:
        self._clock = clock
        self._arguments = command or POWERMETRICS
        self._command: Command | None = None
        self._values: dict[str, float] = {}
        self._end_s = self._read_s = clock.monotonic_s()

    @property
    def interval_s(self) -> float:
        """Seconds from the last ``read`` to the next common reading moment (see ``schedule``)."""
        return until_reading_s(self._read_s)

    def open(self) -> Sequence[Channel]:
        """Start the command and wait for its first sample; energy is counted from its end.

        Raises:
            SourceUnavailable: if the command cannot be run, or has no sample of energy.
        """
        self.close()
        try:
            self._command = Command(self._arguments)
            documents = self._command.documents(_END, _PATIENCE_S)
            _, first = _parsed(documents[-1] if documents else b"")
        except (SourceUnavailable, SourceLost) as error:
            self.close()
            raise SourceUnavailable(str(error), _FIX) from error
        self._end_s = self._read_s = self._clock.monotonic_s()
        self._values = dict.fromkeys(first, 0.0)
        return [_CHANNELS[field] for field in first]

    def read(self) -> Sequence[Reading]:
        """Return the energies at the ends of the new samples; none if no sample is due yet.

        A sample is a time span; each begins when the one before it ends.

        Raises:
            ReadingMissed: if a sample is late.
            SourceLost: if the command has ended, or a sample is missing or damaged, so that its
                energy is not known.
        """
        self._read_s = self._clock.monotonic_s()
        if self._command is None:
            raise ReadingMissed("powermetrics is not open; call open() first")
        documents = self._command.documents(_END)
        if not documents and self._read_s - self._end_s >= _LATEST_S:
            raise ReadingMissed("powermetrics has no new sample")
        readings = [reading for one in documents for reading in self._readings(*_parsed(one))]
        behind_s = self._read_s - self._end_s - _LATEST_S
        if documents and behind_s > _LATEST_S:
            raise SourceLost(f"powermetrics has no sample of the last {behind_s:.0f} s")
        self._end_s += max(behind_s, 0.0)
        return readings

    def close(self) -> None:
        """See ``Source.close``."""
        if self._command is not None:
            self._command.close()
        self._command = None

    def _readings(self, elapsed_s: float, values: Mapping[str, float]) -> list[Reading]:
        """Return the readings at the end of a sample."""
        if values.keys() != self._values.keys():
            raise SourceLost(f"a document of powermetrics has only {', '.join(values)}")
        self._end_s = min(self._end_s + elapsed_s, self._read_s)
        for field, value in values.items():
            is_counter = _CHANNELS[field].kind == "counter"
            self._values[field] = value + is_counter * self._values[field]
        return [
            Reading(_CHANNELS[field], self._end_s, value, _DELAY_S)
            for field, value in self._values.items()
        ]


def _parsed(document: bytes) -> tuple[float, dict[str, float]]:
    """Return the length of a sample in s, and the value of each channel in this time, by field.

    Raises:
        SourceLost: if the document is damaged, or has no energies.
    """
    try:
        content: dict[str, Any] = plistlib.loads(document.strip(b"\0\n") + _END)
        processor, gpu = content["processor"], content.get("gpu", {})
        values = {
            field: joules_from_millijoules(processor[field])
            for field in _CHANNELS
            if field in processor
        }
        if not values:
            raise SourceLost("powermetrics reports no energy")
        if "idle_ratio" in gpu:
            values["idle_ratio"] = 1.0 - gpu["idle_ratio"]
        return seconds_from_nanoseconds(content["elapsed_ns"]), values
    except (expat.ExpatError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise SourceLost(f"a document of powermetrics is damaged: {error!r}") from error
