"""Determines the framework that this process uses, and creates its trace recorder."""

import sys
from pathlib import Path
from typing import Final, Literal

from energy_callbacks.profiling.frameworks.protocol import TraceRecorder
from energy_callbacks.profiling.frameworks.torch_profiler import TorchRecorder
from energy_callbacks.profiling.frameworks.xplane_profilers import start_and_stop
from energy_callbacks.profiling.kernels.xplane import XplaneRecorder

Framework = Literal["torch", "tensorflow", "jax"]
FRAMEWORKS: Final[tuple[Framework, ...]] = ("torch", "tensorflow", "jax")


def framework() -> Framework:
    """Return Keras's backend if Keras is imported, else the first imported one of ``FRAMEWORKS``.

    A backend that is not in ``FRAMEWORKS`` is ignored.

    Raises:
        RuntimeError: if none of ``FRAMEWORKS`` is imported.
    """
    keras = sys.modules.get("keras")
    backend = keras.backend.backend() if keras is not None else None
    candidates = [backend] if backend in FRAMEWORKS else sys.modules
    for name in FRAMEWORKS:
        if name in candidates:
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
    """Return a recorder of one window: a ``TorchRecorder`` or an ``XplaneRecorder``.

    Args:
        chosen: name of the framework.
        path: path of the trace file without its suffix (PyTorch), or of a folder for the trace
            (TensorFlow, JAX).
        warm_up_steps: number of steps before the recorded ones.
        active_steps: number of recorded steps; used for PyTorch only.
        max_events: maximum number of events in the trace; used for PyTorch only.
        max_bytes: maximum size of the trace in bytes.
    """
    if chosen == "torch":
        return TorchRecorder(
            path,
            warm_up_steps=warm_up_steps,
            active_steps=active_steps,
            max_events=max_events,
            max_bytes=max_bytes,
        )
    start, stop = start_and_stop(chosen)
    return XplaneRecorder(
        chosen,
        start=lambda folder: start(str(folder)),
        stop=stop,
        path=path,
        warm_up_steps=warm_up_steps,
        max_bytes=max_bytes,
    )
