"""What runs the jobs of a matrix: one file for each engine, behind ``protocol.Engine``."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from energy_callbacks.matrix.attempts import Results
from energy_callbacks.matrix.engines.local import LocalEngine, LocalOptions
from energy_callbacks.matrix.engines.protocol import Engine
from energy_callbacks.matrix.engines.ray import RayEngine, RayOptions
from energy_callbacks.matrix.engines.slurm import SlurmEngine, SlurmOptions

OPTIONS: Mapping[str, type[Any]] = MappingProxyType(
    {"local": LocalOptions, "slurm": SlurmOptions, "ray": RayOptions}
)


def make(options: Any, results: Results) -> Engine:
    """The engine of these options.

    Args:
        options: of one of the engines.
        results: where jobs leave what they have measured.
    """
    if isinstance(options, SlurmOptions):
        return SlurmEngine(options, results)
    if isinstance(options, RayOptions):
        return RayEngine(options, results)
    return LocalEngine(options, results)
