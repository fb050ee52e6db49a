"""The engines that run the jobs of a matrix, one file per engine."""

from collections.abc import Mapping
from typing import Any, Final

from energy_callbacks.matrix.engines.local import LocalEngine
from energy_callbacks.matrix.engines.ray import RayEngine
from energy_callbacks.matrix.engines.slurm import SlurmEngine

# Engines by the name in the TOML file. The values are data classes that derive from Engine.
ENGINES: Final[Mapping[str, Any]] = {"local": LocalEngine, "slurm": SlurmEngine, "ray": RayEngine}
