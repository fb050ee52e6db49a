"""What runs the jobs of a matrix: one file for each engine."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from energy_callbacks.matrix.engines.engine import Engine
from energy_callbacks.matrix.engines.local import LocalEngine, LocalOptions
from energy_callbacks.matrix.engines.ray import RayEngine, RayOptions
from energy_callbacks.matrix.engines.slurm import SlurmEngine, SlurmOptions

# The class of the options of each engine, and the engine.
ENGINES: Mapping[str, tuple[type[Any], type[Engine]]] = MappingProxyType(
    {
        "local": (LocalOptions, LocalEngine),
        "slurm": (SlurmOptions, SlurmEngine),
        "ray": (RayOptions, RayEngine),
    }
)
