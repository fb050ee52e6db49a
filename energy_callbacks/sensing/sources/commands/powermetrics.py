"""Reads the energy of Apple silicon: CPU, GPU and Neural Engine, from Apple's ``powermetrics``.

``powermetrics`` needs root. It is run through ``sudo -n``, which never asks for a password. Its
value ``combined_power`` is the sum of the three parts. It contains neither memory, display nor
storage, so there is no sensor of the whole machine. The same counters are in IOReport, which is not
documented by Apple and is not read.
"""

import os
import plistlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from energy_callbacks.core.errors import ReadingMissed, SourceLost, SourceUnavailable
from energy_callbacks.core.records import Channel, Device, Reading, Sensor
from energy_callbacks.core.units import joules_from_millijoules, seconds_from_nanoseconds
from energy_callbacks.sensing.clock import Clock
from energy_callbacks.sensing.schedule import until_reading_s
from energy_callbacks.sensing.sources.commands.command import Command

_INTERVAL_S: Final = 0.5
POWERMETRICS: Final = (
    "powermetrics", "-f", "plist", "-b", "1", "-i", f"{_INTERVAL_S * 1e3:.0f}",
    "--samplers", "cpu_power,gpu_power,ane_power",
)  # fmt: skip
_SUDO: Final = ("sudo", "-n")
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
_DEVICES: Final[Mapping[str, Device]] = {
    "cpu_energy": Device(key="cpu0", kind="cpu", scope="host", name="Apple CPU", index=0),
    "gpu_energy": Device(
        key="gpu0", kind="gpu", scope="gpu", name="Apple GPU", index=0,
        notes=("integrated GPU, used by all programs; its memory is that of the machine",),
    ),
    "ane_energy": Device(key="npu0", kind="npu", scope="host", name="Apple Neural Engine"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Sample:
    """One document: what was used in a time span.

    Attributes:
        elapsed_s: length of the time span, s.
        energies_j: energy by field of the document, J; a part that the chip lacks is absent.
        utilisation: share of time in which the GPU was busy; ``None`` if not stated.
    """

    elapsed_s: float
    energies_j: Mapping[str, float]
    utilisation: float | None


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
        self._channels: dict[str, Channel] = {}
        self._totals_j: dict[str, float] = {}
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
        is_root = sys.platform == "win32" or os.geteuid() == 0
        try:
            self._command = Command((() if is_root else _SUDO) + tuple(self._arguments))
            documents = self._command.documents(_END, _PATIENCE_S)
            first = _parsed(documents[-1]) if documents else None
        except (SourceUnavailable, SourceLost) as error:
            self.close()
            raise SourceUnavailable(str(error), _FIX) from error
        if first is None or not first.energies_j:
            self.close()
            raise SourceUnavailable("powermetrics reports no energy", _FIX)
        self._end_s = self._read_s = self._clock.monotonic_s()
        self._totals_j = dict.fromkeys(first.energies_j, 0.0)
        self._channels = {field: _channel(field) for field in first.energies_j}
        if first.utilisation is not None:
            self._channels["utilisation"] = _channel("utilisation")
        return tuple(self._channels.values())

    def read(self) -> Sequence[Reading]:
        """Return the energies at the ends of the new samples.

        A sample is a time span; each begins when the one before it ends.

        Raises:
            ReadingMissed: if there is no new sample.
            SourceLost: if the command has ended, or a sample is damaged, so that its energy is not
                known.
        """
        self._read_s = self._clock.monotonic_s()
        if self._command is None:
            raise ReadingMissed("powermetrics is not open; call open() first")
        samples = [_parsed(document) for document in self._command.documents(_END)]
        if not samples:
            raise ReadingMissed("powermetrics has no new sample")
        left_s = sum(sample.elapsed_s for sample in samples)
        end_s = min(max(self._end_s + left_s, self._read_s - _LATEST_S), self._read_s)
        readings = []
        for sample in samples:
            left_s -= sample.elapsed_s
            readings += self._readings(sample, end_s - left_s)
        self._end_s = end_s
        return readings

    def close(self) -> None:
        """See ``Source.close``."""
        if self._command is not None:
            self._command.close()
        self._command = None

    def _readings(self, sample: _Sample, end_s: float) -> list[Reading]:
        """Return the readings at the end of a sample."""
        if missing := self._totals_j.keys() - sample.energies_j.keys():
            raise SourceLost(f"a document of powermetrics has no {min(missing)}")
        for field in self._totals_j:
            self._totals_j[field] += sample.energies_j[field]
        values = dict(self._totals_j)
        if sample.utilisation is not None and "utilisation" in self._channels:
            values["utilisation"] = sample.utilisation
        return [
            Reading(self._channels[field], end_s, value, _DELAY_S)
            for field, value in values.items()
        ]


def _channel(field: str) -> Channel:
    is_energy = field in _DEVICES
    sensor = Sensor(
        name=f"powermetrics {field}",
        period_s=_INTERVAL_S,
        relative_error=_RELATIVE_ERROR if is_energy else 0.0,
        citation=_CITATION,
    )
    if not is_energy:
        return Channel(
            device=_DEVICES["gpu_energy"], quantity="utilisation", kind="gauge", sensor=sensor
        )
    return Channel(device=_DEVICES[field], quantity="energy", kind="counter", sensor=sensor)


def _parsed(document: bytes) -> _Sample:
    """Return the sample that a document has; raise ``SourceLost`` if it is damaged."""
    try:
        content: dict[str, Any] = plistlib.loads(document.strip(b"\0\n") + _END)
        elapsed_s = seconds_from_nanoseconds(content["elapsed_ns"])
        processor = content["processor"]
        energies_j = {
            field: joules_from_millijoules(processor[field])
            for field in _DEVICES
            if field in processor
        }
        idle = (content.get("gpu") or {}).get("idle_ratio")
    except Exception as error:  # the parser raises exceptions of many types
        raise SourceLost(f"a document of powermetrics is damaged: {error!r}") from error
    return _Sample(elapsed_s, energies_j, None if idle is None else 1.0 - float(idle))
