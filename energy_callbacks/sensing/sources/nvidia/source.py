"""One NVIDIA card: power, energy, memory, load, temperature, clock, throttled time.

Power comes from the driver's buffer of 20 ms samples if there is one; the energy counter is
read at its own ticks (``counter_ticks``). How each quantity is read is in ``nvml_readers``,
``nvml_gauges`` and ``nvml_gpm``, what is known of the sensors in ``nvml_sensors``.
"""

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from energy_callbacks.core.errors import ReadingMissed, SourceLost, SourceUnavailable
from energy_callbacks.core.records import Channel, Device, Quantity, Reading
from energy_callbacks.core.units import watts_from_milliwatts
from energy_callbacks.sensing.clock import Clock
from energy_callbacks.sensing.devices import GpuInfo, card_of_old_mig_name
from energy_callbacks.sensing.sources.nvidia.gauges import GAUGES
from energy_callbacks.sensing.sources.nvidia.gpm import activity, permission_note
from energy_callbacks.sensing.sources.nvidia.known_sensors import generation
from energy_callbacks.sensing.sources.nvidia.readers import (
    NvmlCard,
    Reader,
    SampledPower,
    counter,
    power,
    tried,
)

logger = logging.getLogger("energy_callbacks")

_WAIT_S: Final = 1.0
_SHORTEST_S: Final = 0.0005
# Gauges are read every second interval.
_SILENT_S: Final = 2.0
_LIST_FIX: Final = "'nvidia-smi -L' lists the cards that this process may use"


class NvmlSource:
    """All quantities of one card that the driver offers.

    One source per card, so that a card whose driver hangs stops only its own thread. A MIG
    instance's UUID opens its parent card, whose whole energy is reported: the sensors know no
    instances.

    Args:
        clock: time.
        uuid: of a card (``GPU-...``) or of a MIG instance on it (``MIG-...``).
        more_instances: UUIDs of other MIG instances on that card that this process uses.
    """

    def __init__(self, clock: Clock, uuid: str, *more_instances: str) -> None:
        self._clock = clock
        self._uuid = uuid
        self._more_instances = more_instances
        self._card: NvmlCard | None = None
        self._readers: tuple[Reader, ...] = ()
        self._read_s = self._answered_s = 0.0
        self._failing: dict[Quantity, Exception] = {}
        self._said: set[Quantity] = set()

    @property
    def name(self) -> str:
        """See ``Source.name``."""
        return f"NVML {self._uuid[:12]}"

    @property
    def interval_s(self) -> float:
        """From the beginning of the last ``read`` until something is due."""
        due_s = min((reader.due_s for reader in self._readers), default=self._read_s + _WAIT_S)
        return min(max(due_s - self._read_s, _SHORTEST_S), _WAIT_S)

    def open(self) -> Sequence[Channel]:
        """Find the card and try each quantity once; those that answer are offered.

        Raises:
            SourceUnavailable: without driver, permission, or card, with what to do.
        """
        self.close()
        nvml = _nvml()
        _start(nvml)
        try:
            self._card = _opened(nvml, self._clock, self._uuid, self._more_instances)
            self._readers = _readers(self._card)
            self._answered_s = self._clock.monotonic_s()
        except nvml.NVMLError as error:
            if self._card is None:
                _stop(nvml)
            self.close()
            raise _unavailable(nvml, error, self._uuid) from error
        if not self._readers:
            self.close()
            raise SourceUnavailable(
                f"{self._uuid} answers, but offers neither power nor energy nor anything else",
                "see 'nvidia-smi -q -d POWER' for what this card reports",
            )
        return tuple(reader.channel for reader in self._readers)

    def read(self) -> Sequence[Reading]:
        """See ``Source.read``; what is due."""
        return self._read(at_once=False)

    def finish(self) -> Sequence[Reading]:
        """See ``FinishingSource``: the samples since the last drain."""
        return self._read(at_once=True)

    def remarks(self) -> Sequence[str]:
        """See ``RemarkingSource``."""
        return [
            "power samples came twice or out of order, seen in "
            f"{reader.untidy} looks at the driver's buffer; each counts once, where it belongs"
            for reader in self._readers
            if isinstance(reader, SampledPower) and reader.untidy
        ]

    def _read(self, *, at_once: bool) -> Sequence[Reading]:
        """What is new of each quantity; one that fails does not take the others with it.

        Raises:
            ReadingMissed: if no quantity has answered for longer than any of them waits.
            SourceLost: if the card is gone and nothing was read before.
        """
        card = self._card
        if card is None:
            raise SourceLost(f"{self.name} is not open; call open() first")
        self._read_s = self._clock.monotonic_s()
        readings: list[Reading] = []
        for reader in self._readers:
            try:
                readings += reader.read(at_once=at_once)
            except card.nvml.NVMLError as error:
                self._failing[reader.channel.quantity] = error
                if card.is_gone(error):
                    if not readings:
                        raise _failed(card, error) from error
                    break
        if readings:
            self._answered_s = self._read_s
            self._say_who_is_silent(card, {reading.channel.quantity for reading in readings})
        elif self._failing and self._read_s - self._answered_s > _SILENT_S:
            newest = list(self._failing.values())[-1]
            raise _failed(card, newest) from newest
        return readings

    def _say_who_is_silent(self, card: NvmlCard, answered: set[Quantity]) -> None:
        """A quantity that fails while others answer is said once, and is no missed reading."""
        for quantity in answered:
            self._failing.pop(quantity, None)
        self._said -= answered
        for quantity in self._failing.keys() - self._said:
            why = self._failing[quantity]
            logger.warning("%s: no %s for now, NVML says %s", card.device.key, quantity, why)
        self._said |= self._failing.keys()

    def close(self) -> None:
        """See ``Source.close``."""
        card, self._card, self._readers = self._card, None, ()
        self._failing, self._said = {}, set()
        if card is not None:
            for give_back in card.at_close:
                give_back()
            _stop(card.nvml)


def _readers(card: NvmlCard) -> tuple[Reader, ...]:
    """A reader for each quantity that this card really answers, tried once."""
    # The counter comes first: samples drained after its call reach past its tick.
    found = (tried(card, make) for make in (counter, power, *GAUGES))
    return (*(reader for reader in found if reader is not None), *activity(card))


def inventory() -> tuple[GpuInfo, ...]:
    """All cards that the driver lists, in its order.

    A card that does not answer (fallen off the bus, not permitted) is left out.

    Raises:
        SourceUnavailable: without driver or permission, with what to do.
    """
    with session() as nvml:
        found = (_info(nvml, index) for index in range(nvml.nvmlDeviceGetCount()))
        return tuple(gpu for gpu in found if gpu is not None)


def _nvml() -> Any:
    import pynvml

    return pynvml


def _start(nvml: Any) -> None:
    """NVML counts its users: each ``nvmlInit`` here has its ``nvmlShutdown``."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise _unavailable(nvml, error) from error


def _stop(nvml: Any) -> None:
    try:
        nvml.nvmlShutdown()
    except nvml.NVMLError:
        return  # the driver was unloaded: nothing is left to release


@contextmanager
def session() -> Iterator[Any]:
    """The driver's library, to ask of inside the block.

    Raises:
        SourceUnavailable: without driver or permission, or if it fails, with what to do.
    """
    nvml = _nvml()
    _start(nvml)
    try:
        yield nvml
    except nvml.NVMLError as error:
        raise _unavailable(nvml, error) from error
    finally:
        _stop(nvml)


def _info(nvml: Any, index: int) -> GpuInfo | None:
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        return GpuInfo(
            index=index,
            uuid=nvml.nvmlDeviceGetUUID(handle),
            name=nvml.nvmlDeviceGetName(handle),
            pci_bus_id=nvml.nvmlDeviceGetPciInfo(handle).busId,
            memory_total_bytes=int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
            compute_capability=nvml.nvmlDeviceGetCudaComputeCapability(handle),
            mig_uuids=_mig_uuids(nvml, handle),
        )
    except nvml.NVMLError:
        return None


def _mig_uuids(nvml: Any, handle: Any) -> tuple[str, ...]:
    try:
        current, _pending = nvml.nvmlDeviceGetMigMode(handle)
        count = nvml.nvmlDeviceGetMaxMigDeviceCount(handle) if current else 0
    except nvml.NVMLError:
        return ()  # a card from before MIG
    found = (_mig_uuid(nvml, handle, index) for index in range(count))
    return tuple(uuid for uuid in found if uuid is not None)


def _mig_uuid(nvml: Any, handle: Any, index: int) -> str | None:
    try:
        instance = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
        return str(nvml.nvmlDeviceGetUUID(instance))
    except nvml.NVMLError:
        return None  # this place of the card holds no instance


def _opened(nvml: Any, clock: Clock, uuid: str, more_instances: Sequence[str]) -> NvmlCard:
    named_card, is_instance = card_of_old_mig_name(uuid), uuid.startswith("MIG-")
    handle = nvml.nvmlDeviceGetHandleByUUID(named_card or uuid)
    if named_card is None and is_instance:
        handle = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
    index = nvml.nvmlDeviceGetIndex(handle)
    device = Device(
        key=f"gpu{index}",
        kind="gpu",
        scope="gpu",
        name=nvml.nvmlDeviceGetName(handle),
        index=index,
        uuid=nvml.nvmlDeviceGetUUID(handle),
        notes=(*_process_notes(nvml, handle), *permission_note(nvml, handle)),
        instance_count=len(_mig_uuids(nvml, handle)),
        instances=(uuid, *more_instances) if is_instance else (),
        limit_w=_limit_w(nvml, handle),
        memory_bytes=_memory_bytes(nvml, handle),
    )
    capability = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    return NvmlCard(
        nvml=nvml, handle=handle, clock=clock, device=device, generation=generation(capability)
    )


def _limit_w(nvml: Any, handle: Any) -> float | None:
    """The lowest of all limits that hold at present."""
    try:
        return watts_from_milliwatts(nvml.nvmlDeviceGetEnforcedPowerLimit(handle)) or None
    except nvml.NVMLError:
        return None


def _memory_bytes(nvml: Any, handle: Any) -> int | None:
    try:
        return int(nvml.nvmlDeviceGetMemoryInfo(handle).total)
    except nvml.NVMLError:
        return None


def _process_notes(nvml: Any, handle: Any) -> tuple[str, ...]:
    """Who else computes on the card now: their energy is in its figures, too.

    In a container the driver may give process numbers of the host, which mean nothing here; one
    of these may be this process.
    """
    import psutil

    try:
        pids = {process.pid for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle)}
    except nvml.NVMLError:
        return ()
    visible = {pid for pid in pids if psutil.pid_exists(pid)}
    others = sorted(visible - _family(psutil))
    unseen = len(pids - visible) - (os.getpid() not in pids)
    notes = []
    if others:
        notes.append(f"shared card: in use by other processes too: {', '.join(map(str, others))}")
    if unseen > 0:
        notes.append(f"shared card: in use by {unseen} or more processes outside this container")
    return tuple(notes)


def _family(psutil: Any) -> set[int]:
    """This process, those that started it and those that it started: ranks of one training."""
    me = psutil.Process()
    relatives = (*me.parents(), *me.children(recursive=True))
    return {os.getpid(), *(process.pid for process in relatives)}


def _failed(card: NvmlCard, error: Exception) -> ReadingMissed | SourceLost:
    if card.is_gone(error):
        return SourceLost(
            f"{card.device.name} ({card.device.key}) is gone: NVML says {error}; "
            "'dmesg | grep -i xid' shows why, and a restart brings it back"
        )
    return ReadingMissed(f"{card.device.key} did not answer: NVML says {error}; trying again")


def _unavailable(nvml: Any, error: Exception, uuid: str = "") -> SourceUnavailable:
    """What a failure to open means, and what helps."""
    known = {
        nvml.NVML_ERROR_LIBRARY_NOT_FOUND: (
            "no NVIDIA driver is found (libnvidia-ml.so.1 is missing)",
            "install the driver, or start the container with GPUs (docker run --gpus all)",
        ),
        nvml.NVML_ERROR_DRIVER_NOT_LOADED: (
            "the NVIDIA driver is installed, but not loaded",
            "load it (sudo modprobe nvidia); 'nvidia-smi' shows when it works",
        ),
        nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
            "the NVIDIA library and the loaded driver are of different versions",
            "they are so after an update: restart the machine, or reload the kernel modules",
        ),
        nvml.NVML_ERROR_NO_PERMISSION: (
            "this user may not ask the NVIDIA driver",
            "ask for access to /dev/nvidiactl and /dev/nvidia0 (in a cluster: request a GPU)",
        ),
        nvml.NVML_ERROR_GPU_IS_LOST: (
            f"{uuid or 'a GPU'} has fallen off the bus",
            "restart the machine; 'dmesg | grep -i xid' shows why",
        ),
        nvml.NVML_ERROR_NOT_FOUND: (f"this machine has no GPU {uuid}", _LIST_FIX),
        nvml.NVML_ERROR_INVALID_ARGUMENT: (f"{uuid!r} is not the UUID of a GPU", _LIST_FIX),
    }
    reason, fix = known.get(
        getattr(error, "value", None), (f"NVML says {error}", "see whether 'nvidia-smi' answers")
    )
    return SourceUnavailable(reason, fix)
