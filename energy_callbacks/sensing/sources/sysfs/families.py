"""Lists all families of sensors that are read from files; a new family is a line here."""

from typing import Final

from energy_callbacks.sensing.clock import Clock
from energy_callbacks.sensing.sources.amdsmi import AmdSmiSource
from energy_callbacks.sensing.sources.protocol import Source
from energy_callbacks.sensing.sources.sysfs.amd_gpu import AMD_GPU
from energy_callbacks.sensing.sources.sysfs.family import Family, FoundDevice
from energy_callbacks.sensing.sources.sysfs.hwmon import ACPI_METER, GRACE
from energy_callbacks.sensing.sources.sysfs.intel_gpu import INTEL_GPU
from energy_callbacks.sensing.sources.sysfs.jetson import JETSON
from energy_callbacks.sensing.sources.sysfs.source import SysfsSource

GPU_FAMILIES: Final[tuple[Family, ...]] = (AMD_GPU, INTEL_GPU)
"""GPUs: a run reads those that it uses."""

HOST_FAMILIES: Final[tuple[Family, ...]] = (GRACE, JETSON)
"""Sensors of the machine, which every run reads."""

NAMED_FAMILIES: Final[tuple[Family, ...]] = (ACPI_METER,)
"""Sensors of the machine that are read only if the user names them."""


def source_of(clock: Clock, family: Family, found: FoundDevice) -> Source:
    """Return a source that reads a device; AMD's library adds to what the files have."""
    source = SysfsSource(clock, family, found)
    if family is AMD_GPU and found.pci is not None:
        return AmdSmiSource(clock, source, found.pci)
    return source
