"""Lists all families of sensors that are read from files; a new family is a line here."""

from typing import Final

from energy_callbacks.sensing.sources.sysfs.amd_gpu import AMD_GPU
from energy_callbacks.sensing.sources.sysfs.family import Family

GPU_FAMILIES: Final[tuple[Family, ...]] = (AMD_GPU,)
"""GPUs: a run reads those that it uses."""

HOST_FAMILIES: Final[tuple[Family, ...]] = ()
"""Sensors of the machine, which every run reads."""
