"""Finds the sensors that this machine has.

To add a sensor, add a file to ``sources`` and a line to ``discover``.
"""

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from energy_callbacks.core.config import Devices
from energy_callbacks.core.errors import SourceUnavailable
from energy_callbacks.sensing import time_limit
from energy_callbacks.sensing.clock import Clock
from energy_callbacks.sensing.devices import GpuInfo, check_devices_argument, choose, resolve
from energy_callbacks.sensing.frameworks import cuda_driver, loaded_frameworks
from energy_callbacks.sensing.sources.allocator import AllocatorSource
from energy_callbacks.sensing.sources.estimate import HostEstimateSource
from energy_callbacks.sensing.sources.host_memory import HostMemorySource
from energy_callbacks.sensing.sources.nvidia.source import NvmlSource, inventory
from energy_callbacks.sensing.sources.protocol import Source
from energy_callbacks.sensing.sources.rapl import POWERCAP, RaplSource

logger = logging.getLogger("energy_callbacks")

POWERCAP_VARIABLE = "ENERGY_CALLBACKS_POWERCAP"
"""Environment variable with the path at which a container mounts the host's powercap folder."""
_Uuids = tuple[tuple[str, ...], ...]
"""For each card to measure, its UUID or the UUIDs of its chosen MIG instances."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveredSources:
    """The sources that a run reads, and the sensors that are not read.

    Attributes:
        sources: sources to open and read.
        unavailable: (name, reason, what the user can do) for each sensor that is not read.
    """

    sources: tuple[Source, ...] = ()
    unavailable: tuple[tuple[str, str, str], ...] = ()


def discover(
    clock: Clock,
    devices: Devices = "auto",
    used_ordinals: Sequence[int] | None = None,
    *,
    host: bool = True,
    other_program: bool = False,
) -> DiscoveredSources:
    """Return the sources for this process, and the sensors that are not read.

    Args:
        clock: clock that the sources use.
        devices: ``"auto"`` (the GPUs that this run uses), ``"all"``, or a list of indices as
            printed by nvidia-smi and UUIDs.
        used_ordinals: for ``"auto"``, CUDA's ordinals of the devices in use; empty if the run uses
            no GPU. ``None`` if not known: then the devices on which this process has a CUDA context
            are measured. If there are none, one device is measured: the one whose ordinal is in the
            environment variable ``LOCAL_RANK``, otherwise device 0.
        host: whether to measure the energy of CPU and RAM; ``True`` in one process per machine.
        other_program: whether the measured program is a child of this process. ``"auto"`` then
            means all GPUs that are visible to this process.

    Raises:
        ValueError: if ``devices`` names a GPU that this machine does not have.
        SourceUnavailable: if ``devices`` names a GPU and NVML lists no GPUs.
    """
    memory = HostMemorySource(clock, only_descendants=other_program)
    parts = (
        _nvidia(clock, devices, used_ordinals, other_program=other_program),
        _host_energy(clock) if host else DiscoveredSources(),
        DiscoveredSources(sources=(memory,) if other_program else (memory, AllocatorSource(clock))),
    )
    return DiscoveredSources(
        sources=tuple(source for part in parts for source in part.sources),
        unavailable=tuple(entry for part in parts for entry in part.unavailable),
    )


def _nvidia(
    clock: Clock, devices: Devices, used_ordinals: Sequence[int] | None, *, other_program: bool
) -> DiscoveredSources:
    """Return a source for each chosen card; raise only if the user named cards in ``devices``."""
    check_devices_argument(devices)
    unavailable = _amd(used_ordinals)
    if unavailable and devices == "auto":
        return DiscoveredSources(unavailable=unavailable)
    try:
        if other_program and devices == "auto":
            chosen = _visible()
        else:
            chosen, others = _chosen(devices, used_ordinals)
            unavailable += others
    except SourceUnavailable as error:
        if devices not in ("auto", "all"):
            asked = f"devices={devices!r} was asked for, but {error.reason}"
            raise SourceUnavailable(asked, error.fix) from error
        chosen = ()
        unavailable += (("NVIDIA GPU", error.reason, error.fix),)
    sources = tuple(NvmlSource(clock, *uuids) for uuids in chosen)
    return DiscoveredSources(sources=sources, unavailable=unavailable)


def _visible() -> _Uuids:
    """Return the UUIDs of all cards visible to this process, without initialising CUDA."""
    visible = dict.fromkeys(choice.gpu.uuid for choice in resolve(os.environ, _cards()))
    if not visible:
        raise SourceUnavailable("the command sees no GPU", "--devices 0 measures one all the same")
    return tuple((uuid,) for uuid in visible)


def _amd(used_ordinals: Sequence[int] | None) -> tuple[tuple[str, str, str], ...]:
    """Return an entry for ``unavailable`` if this process may use AMD GPUs, which are not read."""
    if used_ordinals == () or not loaded_frameworks.is_hip_loaded():
        return ()
    reason = "this process computes through ROCm, and AMD GPUs are not read: no figure holds them"
    logger.warning("%s", reason)
    fix = "'amd-smi monitor' shows their power; name NVIDIA GPUs in devices= to measure those"
    return (("AMD GPU", reason, fix),)


def _chosen(
    devices: Devices, used_ordinals: Sequence[int] | None
) -> tuple[_Uuids, tuple[tuple[str, str, str], ...]]:
    """Return the cards to measure, and entries for ``unavailable``.

    There is an entry if several cards are visible, and it is unknown which of them are used.
    """
    cards = _cards()
    if devices == "auto" and used_ordinals is not None and not used_ordinals:
        raise SourceUnavailable(
            "this run uses no GPU", "pass devices=[0] to measure one all the same"
        )
    driver = cuda_driver.uuids()
    used = _active_ordinals(driver) if used_ordinals is None else tuple(used_ordinals)
    chosen = choose(devices, cards, used_ordinals=used or (0,), driver=driver)
    if devices != "auto" or used:
        return chosen, ()
    visible = len(driver) if driver is not None else len(resolve(os.environ, cards))
    if visible <= 1:
        return chosen, ()
    # The first card was chosen, because it is not known which one is in use.
    reason = f"{visible - 1} more visible to this process, but nothing says that this run uses them"
    fix = "pass devices='all' or devices=[0, 1] to measure them"
    return chosen, (("NVIDIA GPU", reason, fix),)


def _cards() -> tuple[GpuInfo, ...]:
    """Return all cards; raise ``SourceUnavailable`` if there is none or the driver hangs."""
    try:
        cards = time_limit.within(time_limit.PATIENCE_S, inventory, "NVML")
    except TimeoutError as error:
        reason = f"the NVIDIA driver has not listed its GPUs within {time_limit.PATIENCE_S:g} s"
        logger.warning("%s: it hangs", reason)
        raise SourceUnavailable(
            reason, "see whether 'nvidia-smi' answers; 'dmesg | grep -i nvrm' shows why not"
        ) from error
    if not cards:
        raise SourceUnavailable(
            "the NVIDIA driver lists no GPU",
            "start the container with GPUs (docker run --gpus all)",
        )
    return cards


def _active_ordinals(driver: Sequence[str] | None) -> tuple[int, ...]:
    """Return the ordinals of devices with a context of this process.

    If there are none, return ``LOCAL_RANK`` (set by torchrun), or nothing if the driver lists too
    few devices.
    """
    active = cuda_driver.active_ordinals()
    local_rank = os.environ.get("LOCAL_RANK", "")
    if active or not local_rank.isdecimal():
        return active
    is_visible = driver is None or int(local_rank) < len(driver)
    return (int(local_rank),) if is_visible else ()


def _host_energy(clock: Clock) -> DiscoveredSources:
    """Return RAPL if it can be read, and an estimate for CPU or RAM if RAPL does not measure it."""
    rapl = RaplSource(clock, root=Path(os.environ.get(POWERCAP_VARIABLE) or POWERCAP))
    try:
        measured = {channel.device.kind for channel in rapl.open()}
    except SourceUnavailable as error:
        return DiscoveredSources(
            sources=(HostEstimateSource(clock, cpu=True, ram=True),),
            unavailable=((rapl.name, error.reason, error.fix),),
        )
    finally:
        rapl.close()
    no_cpu, no_ram = "cpu" not in measured, "dram" not in measured
    if not (no_cpu or no_ram):
        return DiscoveredSources(sources=(rapl,))
    return DiscoveredSources(sources=(rapl, HostEstimateSource(clock, cpu=no_cpu, ram=no_ram)))
