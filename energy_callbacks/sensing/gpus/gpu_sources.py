"""Chooses the GPUs to measure, of all vendors."""

import os
from collections.abc import Sequence
from typing import Final

from energy_callbacks.core.config import Devices, check_settings
from energy_callbacks.core.errors import SourceUnavailable
from energy_callbacks.core.guard import logger
from energy_callbacks.sensing import time_limit
from energy_callbacks.sensing.clock import Clock
from energy_callbacks.sensing.frameworks import loaded_frameworks
from energy_callbacks.sensing.gpus import drm_gpus
from energy_callbacks.sensing.gpus.devices import GpuInfo, choose, resolve
from energy_callbacks.sensing.gpus.drm_gpus import DrmGpu
from energy_callbacks.sensing.gpus.used_drm_gpus import UsedDrmGpus
from energy_callbacks.sensing.gpus.used_gpus import UsedGpus, all_cards
from energy_callbacks.sensing.sources.nvidia.source import NvmlSource
from energy_callbacks.sensing.sources.protocol import DiscoveredSources
from energy_callbacks.sensing.sources.sysfs import families
from energy_callbacks.sensing.sources.sysfs.family import sysfs_root

_NVIDIA: Final = "NVIDIA GPU"


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
    uses_hip = used != () and loaded_frameworks.is_hip_loaded()
    found = [_without_sensors()] if uses_hip and not drm else []
    if devices != "auto":
        return [*found, _named(clock, devices, drm, has_nvidia=has_nvidia)]
    ordinals = None if used is None else [one for one in used if isinstance(one, int)]
    # With ordinals of HIP, or names only, the framework uses GPUs of other vendors.
    finds_nvidia = has_nvidia and not uses_hip and (bool(ordinals) or not used)
    if finds_nvidia and other_program:
        found.append(_visible(clock))
    elif finds_nvidia:
        nvidia = UsedGpus(clock, ordinals, follow_children=follow_children)
        found.append(DiscoveredSources(sources=(nvidia,)))
    if drm:
        kind = "hip" if uses_hip else "cuda"
        others = UsedDrmGpus(
            clock,
            drm,
            None if used is None else [f"{kind}:{o}" if isinstance(o, int) else o for o in used],
            follow_children=follow_children,
            takes_visible=other_program,
            is_only=not finds_nvidia,
        )
        found.append(DiscoveredSources(sources=(others,)))
    return found


def _named(
    clock: Clock, devices: Devices, drm: Sequence[DrmGpu], *, has_nvidia: bool
) -> DiscoveredSources:
    """Return a source for each GPU of any vendor that the user named."""
    cards: Sequence[GpuInfo] = ()
    refusal: SourceUnavailable | None = None
    try:
        cards = _cards() if has_nvidia else ()
    except SourceUnavailable as error:
        refusal = error
    try:
        chosen = choose(devices, [*cards, *(gpu.info for gpu in drm)])
    except ValueError:
        if refusal is None:
            raise
        asked = f"devices={devices!r} cannot be measured: {refusal.reason}"
        raise SourceUnavailable(asked, refusal.fix) from refusal
    by_uuid = {gpu.info.uuid: gpu for gpu in drm}
    others = [by_uuid[uuids[0]] for uuids in chosen if uuids[0] in by_uuid]
    read = [
        families.source_of(clock, gpu.family, gpu.found)
        for gpu in drm_gpus.with_meters(others, drm)
    ]
    nvidia = [NvmlSource(clock, *uuids) for uuids in chosen if uuids[0] not in by_uuid]
    missing = (_entry(refusal),) if refusal and devices == "all" else ()
    return DiscoveredSources(sources=(*nvidia, *read), unavailable=missing)


def _visible(clock: Clock) -> DiscoveredSources:
    """Return a source for each NVIDIA card visible to this process, without initialising CUDA."""
    try:
        visible = dict.fromkeys(choice.gpu.uuid for choice in resolve(os.environ, _cards()))
    except SourceUnavailable as error:
        return DiscoveredSources(unavailable=(_entry(error),))
    if not visible:
        fix = "to measure one anyway, pass --devices 0"
        return DiscoveredSources(unavailable=((_NVIDIA, "the command can use no GPU", fix),))
    return DiscoveredSources(sources=tuple(NvmlSource(clock, uuid) for uuid in visible))


def _entry(error: SourceUnavailable) -> tuple[str, str, str]:
    return (_NVIDIA, error.reason, error.fix)


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


def _cards() -> tuple[GpuInfo, ...]:
    """Return all cards; raise ``SourceUnavailable`` if there is none or the driver hangs."""
    try:
        return time_limit.within(time_limit.PATIENCE_S, all_cards, "NVML")
    except TimeoutError as error:
        reason = f"the NVIDIA driver has not listed its GPUs within {time_limit.PATIENCE_S:g} s"
        logger.warning("%s: it does not respond", reason)
        raise SourceUnavailable(
            reason, "check whether 'nvidia-smi' responds; 'dmesg | grep -i nvrm' shows why not"
        ) from error
