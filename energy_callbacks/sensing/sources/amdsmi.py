"""Adds the energy counter and throttled time that AMD's library ``amdsmi`` knows to an AMD GPU.

The library knows layouts of ``gpu_metrics`` that ``sysfs.gpu_metrics`` does not. It is used only if
the process has imported it already, as PyTorch for ROCm does: to import it after PyTorch can end
the process with a double free (ROCm/amdsmi pull request 108) or let ``device_count`` return 0
(pytorch/pytorch issue 186516). For the same reason it is not shut down here.
"""

import sys
import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

from energy_callbacks.core.errors import ReadingMissed
from energy_callbacks.core.guard import logger
from energy_callbacks.core.records import Channel, Device, Quantity, Reading, Sensor
from energy_callbacks.sensing.clock import Clock
from energy_callbacks.sensing.sources.sysfs.counter import Counter
from energy_callbacks.sensing.sources.sysfs.family import ALL_ONES, DeviceSensor, FoundDevice
from energy_callbacks.sensing.sources.sysfs.gpu_metrics import JOULES

_ENERGY_CALL: Final = "amdsmi_get_energy_count"
_METRICS_CALL: Final = "amdsmi_get_gpu_metrics_info"
# Bound of the relative error; AMD states none.
_ERROR: Final = 0.1
# Number of lower values in a row that are ignored: counters went backward if several threads read
# them (ROCm/amdsmi issue 115). More of them are a reset.
_MOST_LOWER: Final = 3
# Numbers of firmware cycles for which each reason limited the clocks, and of all cycles: fields of
# amdsmi_gpu_metrics_t, u32, of gpu_metrics 1.6 and newer.
_CYCLES: Final = "accumulation_counter"
_RESIDENCIES: Final = (
    "prochot_residency_acc",
    "ppt_residency_acc",
    "socket_thm_residency_acc",
    "vr_thm_residency_acc",
    "hbm_thm_residency_acc",
)
# Calls of all threads are made one after the other (issue 115 above).
_ONE_CALL: Final = threading.Lock()


def sensors(
    clock: Clock, found: FoundDevice, known: Collection[Quantity]
) -> Sequence[DeviceSensor]:
    """Return the sensors of a GPU for quantities that are not known yet; see ``Library``.

    There are none if the library is not imported, or if it does not know the GPU.

    Args:
        clock: clock that gives the times of the answers.
        found: the GPU.
        known: quantities that are known.
    """
    library = sys.modules.get("amdsmi")
    added: list[DeviceSensor] = []
    if library is None or found.pci is None:
        return added
    try:
        card = _Card(library, clock, found.pci)
    except ReadingMissed as error:
        logger.warning("%s: amdsmi is not used: %s", found.device.key, error)
        return added
    for quantity, kind in _KINDS.items():
        if quantity not in known:
            with suppress(ReadingMissed):  # the library does not know it for this GPU
                added.append(kind(card, found.device))
    return added


class _Card:
    """A GPU of the library.

    Args:
        library: the module ``amdsmi``.
        clock: clock that gives the times of the answers.
        pci: PCI address of the GPU.

    Raises:
        ReadingMissed: if the library does not list the GPU.
    """

    def __init__(self, library: ModuleType, clock: Clock, pci: str) -> None:
        self._clock = clock
        self._library = library
        with _ONE_CALL:
            self._call("amdsmi_init")
            handles = self._call("amdsmi_get_processor_handles")
            addresses = [self._call("amdsmi_get_gpu_device_bdf", one).lower() for one in handles]
        if pci not in addresses:
            raise ReadingMissed(f"it lists {len(handles)} GPUs, and none with the address {pci}")
        self._handle = handles[addresses.index(pci)]

    def _call(self, name: str, *args: Any) -> Any:
        """Call a function of the library; raise ``ReadingMissed`` if it fails or does not exist."""
        try:
            return getattr(self._library, name)(*args)
        except Exception as error:
            raise ReadingMissed(f"{name}: {error}") from error

    def ask(self, name: str) -> "_Answer":
        """Call a function of the library for this GPU; raises as ``_call``."""
        with _ONE_CALL:
            before_s = self._clock.monotonic_s()
            fields = self._call(name, self._handle)
            after_s = self._clock.monotonic_s()
        return _Answer(fields, (before_s + after_s) / 2.0, (after_s - before_s) / 2.0)


@dataclass(frozen=True, slots=True)
class _Answer:
    """Fields that the library returned, and when: as ``Reading.t_s`` and ``t_error_s``."""

    fields: Mapping[str, Any]
    t_s: float
    t_error_s: float

    def number(self, *names: str) -> float:
        """Return the first field that is a number; raise ``ReadingMissed`` if none is.

        The library returns the text "N/A" for fields that the GPU does not have.
        """
        for name in names:
            value = self.fields.get(name)
            if isinstance(value, int | float) and value not in ALL_ONES:
                return value
        raise ReadingMissed(f"no value of {' or '.join(names)}")


class _Energy:
    """Reads the energy counter.

    Raises:
        ReadingMissed: if the GPU has none.
    """

    def __init__(self, card: _Card, device: Device) -> None:
        sensor = Sensor(
            name=_ENERGY_CALL,
            period_s=0.001,
            relative_error=_ERROR,
            is_checked=True,
            citation="AMD SMI Python API reference, amdsmi_get_energy_count; bound assumed",
        )
        self.channel = Channel(device=device, quantity="energy", kind="counter", sensor=sensor)
        self._card = card
        self._newest = _units(card.ask(_ENERGY_CALL))
        self._lower = 0
        # The field counter_resolution is the unit, rounded to 15.3 microjoules (rocm_smi.cc).
        self._counter = Counter(unit=JOULES, wrap=2.0**32 - 1.0)

    @property
    def wraps(self) -> int:
        """See ``DeviceSensor``."""
        return self._counter.wraps

    def read(self) -> Reading:
        """Return the energy since the first answer, J; see ``DeviceSensor``."""
        answer = self._card.ask(_ENERGY_CALL)
        units = _units(answer)
        if units < self._newest and self._lower < _MOST_LOWER:
            self._lower += 1
            raise ReadingMissed(f"{_ENERGY_CALL} went backward")
        self._lower, self._newest = 0, units
        energy_j = self._counter.advance(units, answer.t_s)
        return Reading(self.channel, answer.t_s, energy_j, answer.t_error_s + 0.001)


def _units(answer: _Answer) -> float:
    """Return the counter; before ROCm 6.3, its field had the name ``power``."""
    units = answer.number("energy_accumulator", "power")
    if units == 0:
        raise ReadingMissed("the counter is 0: this GPU has none")
    return units


class _Throttled:
    """Computes the time in which the firmware limited the clocks.

    For each reason, the library counts firmware cycles, whose duration is not documented. The time
    is the share of the cycles of a reason, multiplied by the time between two answers. Seconds with
    two reasons count twice, as on NVIDIA's cards.

    Raises:
        ReadingMissed: if the GPU does not count cycles.
    """

    wraps = 0

    def __init__(self, card: _Card, device: Device) -> None:
        citation = "AMD SMI, GPU violations: share of the accumulated cycles"
        sensor = Sensor(name=_METRICS_CALL, citation=citation)
        self.channel = Channel(device=device, quantity="throttled", kind="counter", sensor=sensor)
        self._card = card
        self._throttled_s = 0.0
        self._answer = card.ask(_METRICS_CALL)
        for name in (_CYCLES, *_RESIDENCIES):
            self._answer.number(name)

    def read(self) -> Reading:
        """Return the time since the first answer, s; see ``DeviceSensor``."""
        before, self._answer = self._answer, self._card.ask(_METRICS_CALL)
        cycles = self._rise(before, _CYCLES)
        limited = [self._rise(before, name) for name in _RESIDENCIES]
        if max(limited) > cycles:
            raise ReadingMissed("the numbers of cycles were reset")
        duration_s = self._answer.t_s - before.t_s
        self._throttled_s += sum(limited) / max(cycles, 1.0) * duration_s
        return Reading(self.channel, self._answer.t_s, self._throttled_s, self._answer.t_error_s)

    def _rise(self, before: _Answer, name: str) -> float:
        """Return the increase of a counter of 32 bits."""
        return (self._answer.number(name) - before.number(name)) % 2**32


_KINDS: Final[Mapping[Quantity, type[_Energy | _Throttled]]] = {
    "energy": _Energy,
    "throttled": _Throttled,
}
