"""Finds the sensors that this machine has.

To add a sensor, add a file to ``sources`` and a line to ``discover``.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from energy_callbacks.core.config import Devices
from energy_callbacks.core.errors import SourceUnavailable
from energy_callbacks.sensing.clock import Clock
from energy_callbacks.sensing.gpus import drm_gpus, gpu_sources
from energy_callbacks.sensing.sources.allocator import AllocatorSource
from energy_callbacks.sensing.sources.estimate import HostEstimateSource
from energy_callbacks.sensing.sources.host_memory import HostMemorySource
from energy_callbacks.sensing.sources.protocol import DiscoveredSources, Source
from energy_callbacks.sensing.sources.rapl import RaplSource
from energy_callbacks.sensing.sources.sysfs import families
from energy_callbacks.sensing.sources.sysfs.family import sysfs_root
from energy_callbacks.sensing.sources.sysfs.source import SysfsSource

POWERCAP_VARIABLE = "ENERGY_CALLBACKS_POWERCAP"
"""Environment variable with the path at which a container mounts the host's powercap folder."""


def discover(
    clock: Clock,
    devices: Devices = "auto",
    used: Sequence[int | str] | None = None,
    *,
    follow_children: bool = True,
    host: bool = True,
    other_program: bool = False,
) -> DiscoveredSources:
    """Return the sources for this process, and the sensors that are not read.

    Args:
        clock: clock that the sources use.
        devices: ``"auto"`` (the GPUs that this run uses), ``"all"``, or a list of indices, UUIDs
            and PCI addresses of GPUs.
        used: for ``"auto"``, the devices that the framework uses: ordinals of CUDA or HIP, and
            names of other devices as PyTorch writes them, such as ``xpu:0``. Empty if the run uses
            no GPU, ``None`` if not known. GPUs that the run uses otherwise are found while it runs;
            see ``UsedGpus`` and ``UsedDrmGpus``.
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
    drm = drm_gpus.inventory(sysfs_root())
    gpus = gpu_sources.discover(
        clock, devices, used, drm=drm, follow_children=follow_children, other_program=other_program
    )
    apus = [gpu.info.key for gpu in drm if gpu.found.is_integrated]
    parts = (
        *gpus,
        _host_energy(clock, apus) if host else DiscoveredSources(),
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


def _host_energy(clock: Clock, apus: Sequence[str]) -> DiscoveredSources:
    """Return the sensors of the host, and an estimate for CPU or RAM if no sensor measures it.

    Args:
        clock: clock that the sources use.
        apus: keys of the APUs, whose energy includes that of the CPU.
    """
    root = sysfs_root()
    zones = Path(os.environ.get(POWERCAP_VARIABLE) or root / "class/powercap")
    rapl = RaplSource(clock, root=zones, parents=apus)
    of_files = [
        SysfsSource(clock, family, found)
        for family in families.HOST_FAMILIES
        for found in family.find(root)
    ]
    kinds, refusal = _measured_kinds(rapl)
    measured = kinds.union(*(_measured_kinds(source)[0] for source in of_files))
    sources: list[Source] = [*([] if refusal else [rapl]), *of_files]
    no_cpu, no_ram = "cpu" not in measured, "dram" not in measured
    if no_cpu or no_ram:
        sources.append(HostEstimateSource(clock, cpu=no_cpu, ram=no_ram))
    entries = ((rapl.name, refusal.reason, refusal.fix),) if refusal and no_cpu else ()
    return DiscoveredSources(sources=tuple(sources), unavailable=entries)


def _measured_kinds(source: Source) -> tuple[set[str], SourceUnavailable | None]:
    """Return the kinds of the host's devices that a source measures, or why it cannot be read."""
    try:
        channels = source.open()
    except SourceUnavailable as error:
        return set(), error
    finally:
        source.close()
    devices = [channel.device for channel in channels if channel.quantity in ("power", "energy")]
    return {device.kind for device in devices if device.scope == "host"}, None
