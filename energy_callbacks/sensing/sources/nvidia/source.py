"""Reads one NVIDIA card: power, energy, memory, load, temperature, clock, throttled time, activity.

Power comes from the driver's buffer of 20 ms samples if there is one; the energy counter is read at
its own ticks (``counter_ticks``). ``readers``, ``gauges`` and ``gpm`` read the quantities, and
``known_sensors`` has the properties of the sensors.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Final

from energy_callbacks.core.errors import ReadingMissed, SourceLost, SourceUnavailable
from energy_callbacks.core.guard import logger
from energy_callbacks.core.records import Channel, Device, Quantity, Reading
from energy_callbacks.core.units import watts_from_milliwatts
from energy_callbacks.sensing.clock import Clock
from energy_callbacks.sensing.gpus.devices import GpuInfo, card_of_old_mig_name
from energy_callbacks.sensing.sources.nvidia.card import NvmlCard, Reader, answer, tried
from energy_callbacks.sensing.sources.nvidia.gauges import GAUGES
from energy_callbacks.sensing.sources.nvidia.gpm import activity, permission_note
from energy_callbacks.sensing.sources.nvidia.known_sensors import generation
from energy_callbacks.sensing.sources.nvidia.peaks import peak
from energy_callbacks.sensing.sources.nvidia.power import EnergyCounter, SampledPower, power

# Bounds of the interval between two calls of ``read``, s.
_WAIT_S: Final = 1.0
_SHORTEST_S: Final = 0.0005
# If a quantity fails and the card has had no reading for more than this number of seconds, the call
# counts as a missed reading. The number is larger than the interval of the gauges, which is
# 2 ``schedule.BEAT_S``.
_SILENT_S: Final = 2.0
_LIST_FIX: Final = "'nvidia-smi -L' lists the cards that this process may use"


class NvmlSource:
    """Reads all quantities that the driver offers for one card.

    There is one source per card, so that a card that does not answer blocks only the thread of its
    source. For the UUID of a MIG instance (a part into which the driver splits a card), the card is
    opened and the energy of the whole card is reported, because the sensors do not distinguish
    instances.

    Args:
        clock: clock that gives monotonic and wall time.
        uuid: UUID of a card (``GPU-...``) or of a MIG instance on it (``MIG-...``).
        more_instances: UUIDs of other MIG instances on that card that this process uses.
    """

    def __init__(self, clock: Clock, uuid: str, *more_instances: str) -> None:
        self.name = f"NVML {uuid[:12]}"
        self._clock = clock
        self._uuid = uuid
        self._more_instances = more_instances
        self._card: NvmlCard | None = None
        self._device: Device | None = None
        self._at_close = ExitStack()
        self._readers: tuple[Reader, ...] = ()
        self._read_s = self._answered_s = 0.0
        self._failing: dict[Quantity, Exception] = {}
        self._reported: set[Quantity] = set()

    @property
    def interval_s(self) -> float:
        """Seconds from the start of the last ``read`` until the next reading is due, at most 1."""
        due_s = min((reader.due_s for reader in self._readers), default=self._read_s + _WAIT_S)
        return min(max(due_s - self._read_s, _SHORTEST_S), _WAIT_S)

    def open(self) -> Sequence[Channel]:
        """Open the card, and return the channels of all quantities that have a value.

        Raises:
            SourceUnavailable: if there is no driver, no permission or no such card, or if the card
                has no values.
        """
        self.close()
        with ExitStack() as stack:
            nvml = stack.enter_context(session(self._uuid))
            card = _opened(nvml, self._clock, self._uuid, self._more_instances, stack)
            if self._device is not None:  # NVML's indices change if another card is missing
                card = replace(card, device=self._device)
            # The counter is read first, so that the power samples extend beyond its tick.
            counter = tried(card, EnergyCounter)
            powers = tried(card, lambda card: power(card, counter))
            others = (tried(card, make) for make in (*GAUGES, activity))
            self._readers = tuple(filter(None, (counter, powers, *others)))
            if not self._readers:
                raise SourceUnavailable(
                    f"{self._uuid} responds, but reports no power, no energy and no other quantity",
                    "see 'nvidia-smi -q -d POWER' for what this card reports",
                )
            self._device, self._card, self._at_close = card.device, card, stack.pop_all()
        self._answered_s = self._clock.monotonic_s()
        return tuple(channel for reader in self._readers for channel in reader.channels)

    def read(self) -> Sequence[Reading]:
        """Return the readings that are due."""
        return self._read(lambda reader: reader.read())

    def read_now(self) -> Sequence[Reading]:
        """Return the newest power and energy, due or not, and the other quantities that are due.

        An energy counter whose calls take long is read only if it is due.
        """
        return self._read(_newest)

    def finish(self) -> Sequence[Reading]:
        """Return the new readings that are available now, even if they are not due."""
        return self._read(lambda reader: reader.read(at_once=True))

    def remarks(self) -> Sequence[str]:
        """See ``RemarkingSource``."""
        return [
            f"power samples were repeated or out of order in {reader.stamps.untidy} readings of "
            "the driver's buffer; each sample counts once, at its own time"
            for reader in self._readers
            if isinstance(reader, SampledPower) and reader.stamps.untidy
        ]

    def _read(self, read: Callable[[Reader], list[Reading]]) -> Sequence[Reading]:
        """Return the new readings of all quantities that do not fail.

        Args:
            read: returns the new readings of one reader.

        Raises:
            ReadingMissed: if a quantity fails and no quantity has had a reading for two seconds.
            SourceLost: if the card is gone and this call has no readings, or if the source is not
                open.
        """
        card = self._card
        if card is None:
            raise SourceLost(f"{self.name} is not open; call open() first")
        self._read_s = self._clock.monotonic_s()
        readings: list[Reading] = []
        for reader in self._readers:
            try:
                readings += read(reader)
            except card.nvml.NVMLError as error:
                quantity = reader.channels[0].quantity
                self._failing.pop(quantity, None)  # keeps the newest error last
                self._failing[quantity] = error
                if card.is_gone(error):
                    if not readings:
                        raise _failed(card, error) from error
                    break
        if readings:
            self._answered_s = self._read_s
            self._report_failing(card, {reading.channel.quantity for reading in readings})
        elif self._failing and self._read_s - self._answered_s > _SILENT_S:
            newest = list(self._failing.values())[-1]
            raise _failed(card, newest) from newest
        return readings

    def _report_failing(self, card: NvmlCard, answered: set[Quantity]) -> None:
        """Log a warning for each quantity that begins to fail while other quantities have readings.

        This does not count as a missed reading.
        """
        for quantity in answered:
            self._failing.pop(quantity, None)
        self._reported -= answered
        for quantity in self._failing.keys() - self._reported:
            why = self._failing[quantity]
            logger.warning("%s: no %s for now, NVML reports %s", card.device.key, quantity, why)
        self._reported |= self._failing.keys()

    def close(self) -> None:
        """See ``Source.close``."""
        self._at_close.close()
        self._card, self._readers = None, ()
        self._failing, self._reported = {}, set()


def _newest(reader: Reader) -> list[Reading]:
    if isinstance(reader, EnergyCounter):
        return reader.read_newest()
    return reader.read(at_once=reader.channels[0].quantity == "power")


def inventory() -> tuple[GpuInfo, ...]:
    """Return the cards that the driver lists, in the order of the driver.

    A card that does not answer is left out, for example because it has lost its PCIe connection or
    because this user may not use it.

    Raises:
        SourceUnavailable: if there is no driver or no permission.
    """
    with session() as nvml:
        cards = (_info(nvml, index) for index in range(nvml.nvmlDeviceGetCount()))
        return tuple(filter(None, cards))


@contextmanager
def session(uuid: str = "") -> Iterator[Any]:
    """Initialise NVML for the block, and yield the module ``pynvml``.

    NVML counts its users: each ``nvmlInit`` needs an ``nvmlShutdown``.

    Args:
        uuid: UUID of the card that the block uses, for messages; may be empty.

    Raises:
        SourceUnavailable: if there is no driver or no permission, or if a call in the block fails.
    """
    import pynvml as nvml

    try:
        nvml.nvmlInit()
        try:
            yield nvml
        finally:
            answer(nvml, nvml.nvmlShutdown)  # fails if the driver was unloaded
    except nvml.NVMLError as error:
        raise _unavailable(nvml, error, uuid) from error


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
    """Return the UUIDs of a card's MIG instances; empty for a card without MIG."""
    is_split, _pending = answer(nvml, nvml.nvmlDeviceGetMigMode, handle, otherwise=(False, False))
    if not is_split:
        return ()
    count = answer(nvml, nvml.nvmlDeviceGetMaxMigDeviceCount, handle, otherwise=0)
    find = nvml.nvmlDeviceGetMigDeviceHandleByIndex
    places = (answer(nvml, find, handle, index) for index in range(count))
    uuids = (answer(nvml, nvml.nvmlDeviceGetUUID, place) for place in places if place is not None)
    return tuple(uuid for uuid in uuids if uuid is not None)


def _opened(
    nvml: Any, clock: Clock, uuid: str, more_instances: Sequence[str], at_close: ExitStack
) -> NvmlCard:
    named_card, is_instance = card_of_old_mig_name(uuid), uuid.startswith("MIG-")
    handle = nvml.nvmlDeviceGetHandleByUUID(named_card or uuid)
    if named_card is None and is_instance:
        handle = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
    index = nvml.nvmlDeviceGetIndex(handle)
    limit_mw = answer(nvml, nvml.nvmlDeviceGetEnforcedPowerLimit, handle)
    memory = answer(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
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
        limit_w=watts_from_milliwatts(limit_mw) if limit_mw else None,
        memory_bytes=None if memory is None else int(memory.total),
        peak=None if is_instance else peak(nvml, handle),
    )
    of_card = generation(nvml.nvmlDeviceGetCudaComputeCapability(handle))
    return NvmlCard(
        nvml=nvml, handle=handle, clock=clock, device=device, generation=of_card, at_close=at_close
    )


def _process_notes(nvml: Any, handle: Any) -> tuple[str, ...]:
    """Return notes about other processes on the card, because its energy includes theirs.

    In a container the driver may report process numbers of the host, which are not visible here.
    One of these numbers may be that of this process.
    """
    import psutil

    running = answer(nvml, nvml.nvmlDeviceGetComputeRunningProcesses, handle, otherwise=())
    pids = {process.pid for process in running}
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
    """Return the pids of this process, its ancestors and descendants; all count as one training."""
    me = psutil.Process()
    relatives = (*me.parents(), *me.children(recursive=True))
    return {os.getpid(), *(process.pid for process in relatives)}


def _failed(card: NvmlCard, error: Exception) -> ReadingMissed | SourceLost:
    if card.is_gone(error):
        return SourceLost(
            f"{card.device.name} ({card.device.key}) is gone: NVML reports {error}; 'dmesg | "
            "grep -i xid' shows why; it is measured again when it is back"
        )
    return ReadingMissed(
        f"{card.device.key} did not answer: NVML reports {error}; it is tried again"
    )


def _unavailable(nvml: Any, error: Exception, uuid: str) -> SourceUnavailable:
    """Convert an ``NVMLError`` to an error that states the reason and what the user can do."""
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
            "this happens after an update: restart the machine, or reload the kernel modules",
        ),
        nvml.NVML_ERROR_NO_PERMISSION: (
            "this user has no permission to use the NVIDIA driver",
            "ask for access to /dev/nvidiactl and /dev/nvidia0 (in a cluster: request a GPU)",
        ),
        nvml.NVML_ERROR_GPU_IS_LOST: (
            f"{uuid or 'a GPU'} is lost (it has fallen off the bus)",
            "restart the machine; 'dmesg | grep -i xid' shows why",
        ),
        nvml.NVML_ERROR_NOT_FOUND: (f"this machine has no GPU {uuid}", _LIST_FIX),
        nvml.NVML_ERROR_INVALID_ARGUMENT: (f"{uuid!r} is not the UUID of a GPU", _LIST_FIX),
    }
    reason, fix = known.get(
        getattr(error, "value", None),
        (f"NVML reports {error}", "check whether 'nvidia-smi' responds"),
    )
    return SourceUnavailable(reason, fix)
