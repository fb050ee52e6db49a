"""Chooses the GPUs to measure, of all vendors."""

from collections.abc import Sequence
from typing import Final

from energy_callbacks.core.errors import SourceUnavailable
from energy_callbacks.core.guard import logger
from energy_callbacks.core.settings.checks import Devices, check_settings
from energy_callbacks.sensing import time_limit
from energy_callbacks.sensing.clock import Clock
from energy_callbacks.sensing.frameworks import loaded_frameworks
from energy_callbacks.sensing.gpus import drm_gpus
from energy_callbacks.sensing.gpus.devices import GpuInfo, choose
from energy_callbacks.sensing.gpus.drm_finder import DrmFinder
from energy_callbacks.sensing.gpus.drm_gpus import DrmGpu
from energy_callbacks.sensing.gpus.nvidia_finder import NvidiaFinder, all_cards
from energy_callbacks.sensing.gpus.used_gpus import GpuFinder, KnownUse, UsedGpus
from energy_callbacks.sensing.sources.nvidia.source import NvmlSource
from energy_callbacks.sensing.sources.protocol import DiscoveredSources
from energy_callbacks.sensing.sources.sysfs.family import sysfs_root
from energy_callbacks.sensing.sources.sysfs.source import SysfsSource

_NVIDIA: Final = NvidiaFinder.name


def discover(
    clock: Clock,
    devices: Devices,
    used: Sequence[int | str] | None,
    *,
    drm: Sequence[DrmGpu],
    follow_children: bool,
    other_program: bool,
) -> list[DiscoveredSources]:
    """Return a source for each GPU that the user named, or the sources that find those in use.

    NVIDIA's driver is not called if the machine has other GPUs and no NVIDIA card.

    Args:
        clock: see ``discovery.discover``.
        devices: see ``discovery.discover``.
        used: see ``discovery.discover``.
        drm: all GPUs of the machine except NVIDIA's.
        follow_children: see ``discovery.discover``.
        other_program: see ``discovery.discover``.

    Raises:
        ValueError: if ``devices`` is not valid or names a GPU that this machine does not have.
        SourceUnavailable: if ``devices`` names a GPU and NVML lists no GPUs.
    """
    check_settings(devices=devices)
    has_nvidia = not drm or drm_gpus.nvidia_count(sysfs_root()) > 0
    uses_none = used is not None and not used
    uses_hip = not uses_none and loaded_frameworks.is_hip_loaded()
    found = [_without_sensors()] if uses_hip and not drm else []
    if devices != "auto":
        return [*found, _named(clock, devices, drm, has_nvidia=has_nvidia)]
    kind = "hip" if uses_hip else "cuda"
    names = None if used is None else [o if isinstance(o, str) else f"{kind}:{o}" for o in used]
    known = KnownUse(devices=names, follow_children=follow_children, takes_visible=other_program)
    finders: list[GpuFinder] = [DrmFinder(clock, drm, known)] if drm else []
    # With ordinals of HIP, or other names only, the framework uses GPUs of other vendors.
    if has_nvidia and not uses_hip and (not used or known.ordinals("cuda")):
        finders.insert(0, NvidiaFinder(clock, known))
    measured: set[GpuInfo] = set()
    sources = tuple(
        UsedGpus(clock, one, measured, uses_none=uses_none, reports_none=one is finders[0])
        for one in finders
    )
    return [*found, DiscoveredSources(sources=sources)]


def _named(
    clock: Clock, devices: Devices, drm: Sequence[DrmGpu], *, has_nvidia: bool
) -> DiscoveredSources:
    """Return a source for each GPU of any vendor that the user named."""
    cards, refusal = _cards() if has_nvidia else ((), None)
    try:
        chosen = choose(devices, [*cards, *(gpu.info for gpu in drm)])
    except ValueError:
        if refusal is None:
            raise
        asked = f"devices={devices!r} cannot be measured: {refusal.reason}"
        raise SourceUnavailable(asked, refusal.fix) from refusal
    nvidia = [NvmlSource(clock, *uuids) for gpu, uuids in chosen.items() if gpu in cards]
    by_info = {gpu.info: gpu for gpu in drm}
    others = [by_info[info] for info in chosen if info in by_info]
    read = [SysfsSource(clock, gpu.family, gpu.found) for gpu in drm_gpus.with_meters(others, drm)]
    missing = ((_NVIDIA, refusal.reason, refusal.fix),) if refusal and devices == "all" else ()
    return DiscoveredSources(sources=(*nvidia, *read), unavailable=missing)


def _without_sensors() -> DiscoveredSources:
    """Return the report that this process uses AMD GPUs, but no GPU has sensors."""
    where = f"but there are none in {sysfs_root()}/class/drm"
    reason = f"this process uses AMD GPUs (ROCm), {where}: the figures do not include them"
    logger.warning("%s", reason)
    fix = (
        "in a container, mount the host's /sys and set ENERGY_CALLBACKS_SYSFS to its path; to "
        "measure NVIDIA GPUs, name them in devices="
    )
    return DiscoveredSources(unavailable=(("AMD GPU", reason, fix),))


def _cards() -> tuple[Sequence[GpuInfo], SourceUnavailable | None]:
    """Return all NVIDIA cards, or why there are none, such as a driver that hangs."""
    try:
        return time_limit.within(time_limit.PATIENCE_S, all_cards, "NVML"), None
    except SourceUnavailable as error:
        return (), error
    except TimeoutError:
        reason = f"the NVIDIA driver has not listed its GPUs within {time_limit.PATIENCE_S:g} s"
        logger.warning("%s: it does not respond", reason)
        fix = "check whether 'nvidia-smi' responds; 'dmesg | grep -i nvrm' shows why not"
        return (), SourceUnavailable(reason, fix)
