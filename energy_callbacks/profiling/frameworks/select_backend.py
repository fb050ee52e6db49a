"""Selects the profiler of the framework that the process trains with."""

import sys
from pathlib import Path
from typing import Final, Literal

from energy_callbacks.profiling.frameworks import jax_profiler, tensorflow_profiler
from energy_callbacks.profiling.frameworks.torch_profiler import TorchRecorder
from energy_callbacks.profiling.kernels.protocol import TraceRecorder
from energy_callbacks.profiling.kernels.traces.xplane import XplaneRecorder

Framework = Literal["torch", "tensorflow", "jax"]
FRAMEWORKS: Final[tuple[Framework, ...]] = ("torch", "tensorflow", "jax")


def framework() -> Framework:
    """The framework of the process: Keras' backend, else the first that is imported.

    Raises:
        RuntimeError: if none is.
    """
    keras = sys.modules.get("keras")
    backend = keras.backend.backend() if keras is not None else None
    if backend in ("tensorflow", "jax"):
        return "tensorflow" if backend == "tensorflow" else "jax"
    for name in FRAMEWORKS:
        if name in sys.modules:
            return name
    raise RuntimeError(
        "KernelProfiler records PyTorch, TensorFlow and JAX, and none of them is imported; "
        "import yours before the first step"
    )


def recorder(
    chosen: Framework,
    path: Path,
    *,
    warm_up_steps: int,
    active_steps: int,
    max_events: int,
    max_bytes: int,
) -> TraceRecorder:
    """The recorder of a framework; see there."""
    if chosen == "torch":
        return TorchRecorder(
            path,
            warm_up_steps=warm_up_steps,
            active_steps=active_steps,
            max_events=max_events,
            max_bytes=max_bytes,
        )
    profiler = tensorflow_profiler if chosen == "tensorflow" else jax_profiler
    return XplaneRecorder(
        chosen,
        start=profiler.start,
        stop=profiler.stop,
        path=path,
        warm_up_steps=warm_up_steps,
        max_bytes=max_bytes,
    )
