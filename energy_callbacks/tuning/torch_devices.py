"""The devices that PyTorch uses in this process. No function here initializes a device.

Initializing CUDA makes it fail in processes that are forked later, and takes hundreds of megabytes.
"""

import sys
from collections.abc import Iterator
from typing import Any


def used_backends() -> Iterator[Any]:
    """Yield the modules, such as ``torch.cuda``, of the device types that this process uses.

    ``torch.cuda`` and ``torch.xpu`` are yielded if they are initialized. PyTorch does not report
    this for ``torch.mps`` (Apple's Metal), so it is yielded if it is available: its functions
    allocate nothing. Nothing is yielded if PyTorch is not imported.
    """
    torch: Any = sys.modules.get("torch")
    if not hasattr(torch, "cuda"):
        return
    for name in ("cuda", "xpu"):
        backend = getattr(torch, name, None)  # the oldest supported PyTorch has no torch.xpu
        if backend is not None and backend.is_initialized():
            yield backend
    if torch.backends.mps.is_available():
        yield torch.mps


def used_generators() -> Iterator[Any]:
    """Yield the default random generators of the CPU and of all devices in use."""
    torch: Any = sys.modules.get("torch")
    if hasattr(torch, "cuda"):
        yield torch.default_generator
    for backend in used_backends():
        if backend is torch.mps:
            yield torch.mps._get_default_mps_generator()  # noqa: SLF001 - as in get_rng_state
        else:
            yield from backend.default_generators
