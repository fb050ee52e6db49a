"""Finds the sensors that this machine has.

To add a sensor, add a file to ``sources`` and a line to ``discover``.
"""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from energy_callbacks.core.errors import SourceUnavailable
from energy_callbacks.core.settings.checks import Devices, MachinePower
from energy_callbacks.sensing.clock import Clock
from energy_callbacks.sensing.gpus import drm_gpus, gpu_sources
from energy_callbacks.sensing.sources.allocator import AllocatorSource
from energy_callbacks.sensing.sources.estimate import HostEstimateSource
from energy_callbacks.sensing.sources.host_memory import HostMemorySource
from energy_callbacks.sensing.sources.perf_energy import PerfEnergySource
from energy_callbacks.sensing.sources.protocol import DiscoveredSources, Source
from energy_callbacks.sensing.sources.rapl import RaplSource
from energy_callbacks.sensing.sources.sysfs import families
from energy_callbacks.sensing.sources.sysfs.family import sysfs_root
from energy_callbacks.sensing.sources.sysfs.hwmon import ACPI_METER
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
    machine_power: MachinePower = "auto",
) -> DiscoveredSources:
    """Return the sources for this process, and the sensors that are not read.

    Args:
        clock: clock that the sources use.
        devices: ``"auto"`` (the GPUs that this run uses), ``"all"``, or a list of indices, UUIDs
            and PCI addresses of GPUs.
        used: for ``"auto"``, the devices that the framework uses: ordinals of CUDA or HIP, and
            names of other devices as PyTorch writes them, such as ``xpu:0``. Empty if the run uses
            no GPU, ``None`` if not known. GPUs that the run uses otherwise are found while it runs;
            see ``UsedGpus``.
        follow_children: for ``"auto"``, whether GPUs of child processes are used by this run.
        host: whether to measure the energy of CPU and RAM; ``True`` in one process per machine.
        other_program: whether the measured program is a child of this process. ``"auto"`` then
            means all GPUs that are visible to this process.
        machine_power: ``"acpi"`` or ``"ipmi"`` to measure the whole server, too, in one process per
            machine.

    Raises:
        ValueError: if ``devices`` names a GPU that this machine does not have.
        SourceUnavailable: if ``devices`` names a GPU and NVML lists no GPUs.
    """
    _import_libraries()
    memory = HostMemorySource(clock, only_descendants=other_program)
    drm = drm_gpus.inventory(sysfs_root())
    gpus: list[DiscoveredSources] = []
    if not _host_measures(devices):
        gpus = gpu_sources.discover(
            clock,
            devices,
            used,
            drm=drm,
            follow_children=follow_children,
            other_program=other_program,
        )
    apus = [gpu.info.key for gpu in drm if gpu.found.is_integrated]
    parts = (
        *gpus,
        _host_energy(clock, apus) if host else DiscoveredSources(),
        _named_machine(clock, machine_power) if host else DiscoveredSources(),
        DiscoveredSources(sources=(memory,) if other_program else (memory, AllocatorSource(clock))),
    )
    return DiscoveredSources(
        sources=tuple(source for part in parts for source in part.sources),
        unavailable=tuple(entry for part in parts for entry in part.unavailable),
    )


def _host_measures(devices: Devices) -> bool:
    """Return whether the sensors of the host measure its GPU, so that no driver is asked for it.

    That are the rails of boards, and ``powermetrics`` on macOS, which has no driver of other GPUs.
    """
    if sys.platform == "darwin":
        return isinstance(devices, str)
    if devices != "auto":
        return False
    found = (one for family in families.HOST_FAMILIES for one in family.find(sysfs_root()))
    return any(one.device.kind == "gpu" for one in found)


def _named_machine(clock: Clock, machine_power: MachinePower) -> DiscoveredSources:
    """Return the sensor of the whole machine that the user named, or why it is not read."""
    if machine_power == "auto":
        return DiscoveredSources()
    if machine_power == "ipmi":
        from energy_callbacks.sensing.sources.commands.ipmi import IpmiSource  # takes 10 ms

        return DiscoveredSources(sources=(IpmiSource(clock),))
    found = [SysfsSource(clock, ACPI_METER, one) for one in ACPI_METER.find(sysfs_root())]
    reason = "this machine has no ACPI power meter, or several that may overlap"
    refusal = (ACPI_METER.name, reason, ACPI_METER.absence_fix)
    return DiscoveredSources(sources=tuple(found), unavailable=() if found else (refusal,))


def _import_libraries() -> None:
    """Import the libraries of the sources now, not on their threads.

    If a data loader forked a worker while another thread imports a module, the lock of that import
    would stay locked in the worker.
    """
    with suppress(ImportError):  # the source that needs it reports that it is missing
        import psutil  # noqa: F401
        import pynvml  # noqa: F401


def _host_energy(clock: Clock, apus: Sequence[str] = ()) -> DiscoveredSources:
    """Return the sensors of the host in files, the first sensor of the CPU, and an estimate.

    The estimate is for what no sensor measures.
    """
    sources: list[Source] = []
    measured = set[str]()
    for family in families.HOST_FAMILIES:
        for found in family.find(sysfs_root()):
            source = SysfsSource(clock, family, found)
            sources.append(source)
            with suppress(SourceUnavailable):  # it is opened and reported later
                measured |= _measured_kinds(source).union(family.included_kinds)
    refusals: list[tuple[str, SourceUnavailable]] = []
    for cpu in _cpu_sources(clock, apus) if "cpu" not in measured else ():
        try:
            measured |= _measured_kinds(cpu)
        except SourceUnavailable as error:
            refusals.append((cpu.name, error))
        else:
            sources.append(cpu)
            refusals.clear()
            break
    no_cpu, no_ram = "cpu" not in measured, "dram" not in measured
    if no_cpu or no_ram:
        sources.append(HostEstimateSource(clock, cpu=no_cpu, ram=no_ram))
    # The last sensor with a fix also names the fixes of those before it.
    fix = next((error.fix for _, error in reversed(refusals) if error.fix), "")
    entries = tuple((name, error.reason, fix) for name, error in refusals[:1])
    return DiscoveredSources(sources=tuple(sources), unavailable=entries)


def _measured_kinds(source: Source) -> set[str]:
    """Return the kinds of the host's devices that a source measures.

    Raises:
        SourceUnavailable: if the source cannot be opened.
    """
    try:
        channels = source.open()
    finally:
        source.close()
    return {one.device.kind for one in channels if one.quantity in ("power", "energy")}


def _cpu_sources(clock: Clock, apus: Sequence[str]) -> tuple[Source, ...]:
    """Return the sensors of the CPU on this system, the best one first.

    Args:
        clock: clock that the sources use.
        apus: keys of the APUs, whose energy includes that of the CPU.
    """
    if sys.platform == "darwin":
        from energy_callbacks.sensing.sources.commands.powermetrics import PowermetricsSource

        return (PowermetricsSource(clock),)
    root = sysfs_root()
    zones = Path(os.environ.get(POWERCAP_VARIABLE) or root / "class/powercap")
    return RaplSource(clock, zones, parents=apus), PerfEnergySource(clock, root, parents=apus)
