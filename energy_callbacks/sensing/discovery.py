"""Finds the sensors that this machine has.

To add a sensor, add a file to ``sources`` and a line to ``discover``.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from energy_callbacks.core.config import Devices, check_settings
from energy_callbacks.core.errors import SourceUnavailable
from energy_callbacks.core.guard import logger
from energy_callbacks.sensing import time_limit
from energy_callbacks.sensing.clock import Clock
from energy_callbacks.sensing.frameworks import loaded_frameworks
from energy_callbacks.sensing.gpus.devices import GpuInfo, choose, resolve
from energy_callbacks.sensing.gpus.used_gpus import UsedGpus, all_cards
from energy_callbacks.sensing.sources.allocator import AllocatorSource
from energy_callbacks.sensing.sources.estimate import HostEstimateSource
from energy_callbacks.sensing.sources.host_memory import HostMemorySource
from energy_callbacks.sensing.sources.nvidia.source import NvmlSource
from energy_callbacks.sensing.sources.protocol import DiscoveredSources
from energy_callbacks.sensing.sources.rapl import POWERCAP, RaplSource

POWERCAP_VARIABLE = "ENERGY_CALLBACKS_POWERCAP"
"""Environment variable with the path at which a container mounts the host's powercap folder."""
_Uuids = tuple[tuple[str, ...], ...]
"""For each card to measure, its UUID or the UUIDs of its chosen MIG instances."""


def discover(
    clock: Clock,
    devices: Devices = "auto",
    used_ordinals: Sequence[int] | None = None,
    *,
    follow_children: bool = True,
    host: bool = True,
    other_program: bool = False,
) -> DiscoveredSources:
    """Return the sources for this process, and the sensors that are not read.

    Args:
        clock: clock that the sources use.
        devices: ``"auto"`` (the GPUs that this run uses), ``"all"``, or a list of indices as
            printed by nvidia-smi and UUIDs.
        used_ordinals: for ``"auto"``, CUDA's ordinals of the devices in use; empty if the run uses
            no GPU, ``None`` if not known. GPUs that the run uses otherwise are found while it runs;
            see ``UsedGpus``.
        follow_children: for ``"auto"``, whether GPUs of child processes are used by this run.
        host: whether to measure the energy of CPU and RAM; ``True`` in one process per machine.
        other_program: whether the measured program is a child of this process. ``"auto"`` then
            means all GPUs that are visible to this process.

    Raises:
        ValueError: if ``devices`` names a GPU that this machine does not have.
        SourceUnavailable: if ``devices`` names a GPU and NVML lists no GPUs.
    """
    _import_libraries()
    memory = HostMemorySource(clock, only_descendants=other_program)
    parts = (
        _nvidia(
            clock,
            devices,
            used_ordinals,
            follow_children=follow_children,
            other_program=other_program,
        ),
        _host_energy(clock) if host else DiscoveredSources(),
        DiscoveredSources(sources=(memory,) if other_program else (memory, AllocatorSource(clock))),
    )
    return DiscoveredSources(
        sources=tuple(source for part in parts for source in part.sources),
        unavailable=tuple(entry for part in parts for entry in part.unavailable),
    )


def _import_libraries() -> None:
    """Import the libraries of the sources now, not on their threads.

    If a data loader forked a worker while another thread imports a module, the lock of that import
    would stay locked in the worker.
    """
    with suppress(ImportError):  # the source that needs it reports that it is missing
        import psutil  # noqa: F401
        import pynvml  # noqa: F401


def _nvidia(
    clock: Clock,
    devices: Devices,
    used_ordinals: Sequence[int] | None,
    *,
    follow_children: bool,
    other_program: bool,
) -> DiscoveredSources:
    """Return a source for each chosen card, or the source that finds the cards in use.

    Raises only if the user named cards in ``devices``.
    """
    check_settings(devices=devices)
    amd = _amd(used_ordinals)
    if devices == "auto" and amd:
        return DiscoveredSources(unavailable=amd)
    if devices == "auto" and not other_program:
        used = UsedGpus(clock, used_ordinals, follow_children=follow_children)
        return DiscoveredSources(sources=(used,))
    try:
        chosen = _visible() if devices == "auto" else choose(devices, _cards())
    except SourceUnavailable as error:
        if devices not in ("auto", "all"):
            asked = f"devices={devices!r} cannot be measured: {error.reason}"
            raise SourceUnavailable(asked, error.fix) from error
        refusal = ("NVIDIA GPU", error.reason, error.fix)
        return DiscoveredSources(unavailable=(*amd, refusal))
    sources = tuple(NvmlSource(clock, *uuids) for uuids in chosen)
    return DiscoveredSources(sources=sources, unavailable=amd)


def _visible() -> _Uuids:
    """Return the UUIDs of all cards visible to this process, without initialising CUDA."""
    visible = dict.fromkeys(choice.gpu.uuid for choice in resolve(os.environ, _cards()))
    if not visible:
        raise SourceUnavailable(
            "the command can use no GPU", "to measure one anyway, pass --devices 0"
        )
    return tuple((uuid,) for uuid in visible)


def _amd(used_ordinals: Sequence[int] | None) -> tuple[tuple[str, str, str], ...]:
    """Return an entry for ``unavailable`` if this process may use AMD GPUs, which are not read."""
    if used_ordinals == () or not loaded_frameworks.is_hip_loaded():
        return ()
    reason = (
        "this process uses AMD GPUs (ROCm), which are not measured: the figures do not include them"
    )
    logger.warning("%s", reason)
    fix = "to see their power, run 'amd-smi monitor'; to measure NVIDIA GPUs, name them in devices="
    return (("AMD GPU", reason, fix),)


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
