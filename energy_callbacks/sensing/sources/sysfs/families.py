"""Lists all families of sensors that are read from files; a new family is a line here."""

from typing import Final

from energy_callbacks.sensing.sources.sysfs.amd_gpu import AMD_GPU
from energy_callbacks.sensing.sources.sysfs.family import Family
from energy_callbacks.sensing.sources.sysfs.hwmon import ACPI_METER, GRACE
from energy_callbacks.sensing.sources.sysfs.intel_gpu import INTEL_GPU
from energy_callbacks.sensing.sources.sysfs.jetson import JETSON

GPU_FAMILIES: Final[tuple[Family, ...]] = (AMD_GPU, INTEL_GPU)
"""GPUs: a run reads those that it uses."""

HOST_FAMILIES: Final[tuple[Family, ...]] = (GRACE, JETSON)
"""Sensors of the machine, which every run reads."""

NAMED_FAMILIES: Final[tuple[Family, ...]] = (ACPI_METER,)
"""Sensors of the machine that are read only if the user names them."""
