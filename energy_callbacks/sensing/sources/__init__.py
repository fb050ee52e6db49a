"""One file per sensor; ``discover`` finds those that this machine has.

To add a sensor: its file beside this one, and one line in ``discover``.
"""

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from energy_callbacks.core.config import Devices
from energy_callbacks.core.errors import SourceUnavailable
from energy_callbacks.sensing import time_limit
from energy_callbacks.sensing.clock import Clock
from energy_callbacks.sensing.sources.protocol import Source

if TYPE_CHECKING:
    from energy_callbacks.sensing.devices import GpuInfo

logger = logging.getLogger("energy_callbacks")

POWERCAP_VARIABLE = "ENERGY_CALLBACKS_POWERCAP"
"""Where a container has mounted the host's powercap folder."""
_NO_CARD = (
    "the NVIDIA driver lists no GPU",
    "start the container with GPUs (docker run --gpus all)",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveredSources:
    """What there is to read, and what is not there: (source, reason, what to do)."""

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
    """The sensors of this run.

    Args:
        clock: time, for the sources.
        devices: ``"auto"`` (the GPUs that this run uses), ``"all"``, or NVML indices as nvidia-smi
            prints them and UUIDs.
        used_ordinals: for ``"auto"``, CUDA's numbers of the devices in use. ``None`` if not
            known: then those on which this process has a context, else the first.
        host: whether this process measures CPUs and memory; one per machine does.
        other_program: whether it is not this process that is measured, but a program that it
            starts: ``"auto"`` are then all GPUs that this one sees.

    Raises:
        ValueError: if ``devices`` names a GPU that is not there.
        SourceUnavailable: if ``devices`` names a GPU and NVML is not there.
    """
    from energy_callbacks.sensing.sources.allocator import AllocatorSource
    from energy_callbacks.sensing.sources.host_memory import HostMemorySource

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
    """A source for each chosen card; a refusal only if the user named one."""
    from energy_callbacks.sensing.devices import check_devices_argument
    from energy_callbacks.sensing.sources.nvidia.source import NvmlSource

    check_devices_argument(devices)
    amd = _amd(used_ordinals)
    if amd and devices == "auto":
        return DiscoveredSources(unavailable=amd)
    try:
        is_all_visible = other_program and devices == "auto"
        chosen, missing = (_visible(), ()) if is_all_visible else _chosen(devices, used_ordinals)
    except SourceUnavailable as error:
        if devices not in ("auto", "all"):
            asked = f"devices={devices!r} was asked for, but {error.reason}"
            raise SourceUnavailable(asked, error.fix) from error
        return DiscoveredSources(unavailable=(*amd, ("NVIDIA GPU", error.reason, error.fix)))
    sources = tuple(NvmlSource(clock, *uuids) for uuids in chosen)
    return DiscoveredSources(sources=sources, unavailable=(*amd, *missing))


def _visible() -> tuple[tuple[str, ...], ...]:
    """All cards that the masks of this process leave, by UUID; CUDA is not initialised."""
    from energy_callbacks.sensing.devices import resolve

    cards = _cards()
    if not cards:
        raise SourceUnavailable(*_NO_CARD)
    visible = dict.fromkeys(choice.gpu.uuid for choice in resolve(os.environ, cards))
    if not visible:
        raise SourceUnavailable("the command sees no GPU", "--devices 0 measures one all the same")
    return tuple((uuid,) for uuid in visible)


def _amd(used_ordinals: Sequence[int] | None) -> tuple[tuple[str, str, str], ...]:
    """If the run may compute on AMD cards: that no source reads them."""
    from energy_callbacks.sensing.frameworks import hip_runtime

    if used_ordinals == () or not hip_runtime.is_loaded():
        return ()
    reason = "this process computes through ROCm, and AMD GPUs are not read: no figure holds them"
    logger.warning("%s", reason)
    fix = "'amd-smi monitor' shows their power; name NVIDIA GPUs in devices= to measure those"
    return (("AMD GPU", reason, fix),)


def _chosen(
    devices: Devices, used_ordinals: Sequence[int] | None
) -> tuple[tuple[tuple[str, ...], ...], tuple[tuple[str, str, str], ...]]:
    """What to measure, by UUID for each card, and what to say about the other cards."""
    from energy_callbacks.sensing.devices import choose, resolve
    from energy_callbacks.sensing.frameworks import cuda_driver

    cards = _cards()
    if not cards:
        raise SourceUnavailable(*_NO_CARD)
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
    return chosen, _unclaimed(visible - 1)


def _cards() -> "tuple[GpuInfo, ...]":
    """All cards; a driver that hangs must not hang the start of the training, too."""
    from energy_callbacks.sensing.sources.nvidia.source import inventory

    try:
        return time_limit.within(time_limit.PATIENCE_S, inventory, "NVML")
    except TimeoutError as error:
        reason = f"the NVIDIA driver has not listed its GPUs within {time_limit.PATIENCE_S:g} s"
        logger.warning("%s: it hangs", reason)
        raise SourceUnavailable(
            reason, "see whether 'nvidia-smi' answers; 'dmesg | grep -i nvrm' shows why not"
        ) from error


def _active_ordinals(driver: Sequence[str] | None) -> tuple[int, ...]:
    """Devices with a context of this process; before it has one, torchrun's own rule."""
    from energy_callbacks.sensing.frameworks import cuda_driver

    active = cuda_driver.active_ordinals()
    local_rank = os.environ.get("LOCAL_RANK", "")
    if active or not local_rank.isdecimal():
        return active
    is_visible = driver is None or int(local_rank) < len(driver)
    return (int(local_rank),) if is_visible else ()


def _unclaimed(count: int) -> tuple[tuple[str, str, str], ...]:
    """The first GPU was taken for want of better knowledge; the others are not forgotten."""
    if count <= 0:
        return ()
    reason = f"{count} more visible to this process, but nothing says that this run uses them"
    return (("NVIDIA GPU", reason, "pass devices='all' or devices=[0, 1] to measure them"),)


def _host_energy(clock: Clock) -> DiscoveredSources:
    """RAPL if it can be read, and an estimate of what it does not give."""
    from energy_callbacks.sensing.sources.estimate import HostEstimateSource
    from energy_callbacks.sensing.sources.rapl import POWERCAP, RaplSource

    rapl = RaplSource(clock, root=Path(os.environ.get(POWERCAP_VARIABLE) or POWERCAP))
    try:
        measured = {channel.device.kind for channel in rapl.open()}
    except SourceUnavailable as error:
        estimate = HostEstimateSource(clock, cpu=True, ram=True)
        return DiscoveredSources(
            sources=(estimate,), unavailable=((rapl.name, error.reason, error.fix),)
        )
    finally:
        rapl.close()
    no_cpu, no_ram = "cpu" not in measured, "dram" not in measured
    if not (no_cpu or no_ram):
        return DiscoveredSources(sources=(rapl,))
    return DiscoveredSources(sources=(rapl, HostEstimateSource(clock, cpu=no_cpu, ram=no_ram)))
