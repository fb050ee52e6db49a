"""Determines the framework that this process uses, and creates its trace recorder."""

import sys
from pathlib import Path
from pkgutil import resolve_name
from typing import Final, Literal

from energy_callbacks.profiling.frameworks.protocol import TraceRecorder, WindowLimits
from energy_callbacks.profiling.frameworks.torch_profiler import TorchRecorder
from energy_callbacks.profiling.kernels.xplane import XplaneRecorder

Framework = Literal["torch", "tensorflow", "jax"]
FRAMEWORKS: Final[tuple[Framework, ...]] = ("torch", "tensorflow", "jax")
# Functions that start and stop a trace in the format "xplane".
_XPLANE: Final = {
    "tensorflow": "tensorflow:profiler.experimental.{}",
    "jax": "jax:profiler.{}_trace",
}


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


def recorder(chosen: Framework, path: Path, limits: WindowLimits) -> TraceRecorder:
    """Return a recorder of one window: a ``TorchRecorder`` or an ``XplaneRecorder``.

    Args:
        chosen: name of the framework.
        path: path of the trace file without its suffix (PyTorch), or of a folder for the trace
            (TensorFlow, JAX).
        limits: length of the window and size of the trace.
    """
    if chosen == "torch":
        return TorchRecorder(path, limits)
    start, stop = (resolve_name(_XPLANE[chosen].format(verb)) for verb in ("start", "stop"))
    return XplaneRecorder(chosen, lambda folder: start(str(folder)), stop, path, limits)
