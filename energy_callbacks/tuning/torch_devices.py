"""Finds the devices that PyTorch uses in this process, without initializing a device.

After CUDA is initialized, it does not work in processes that are forked later, and it occupies
hundreds of megabytes.
"""

import sys
from collections.abc import Iterator
from typing import Any


def used_backends() -> Iterator[Any]:
    """Yield the modules, such as ``torch.cuda``, of the device types that this process uses.

    ``torch.cuda`` and ``torch.xpu`` are yielded if they are initialized. PyTorch does not report
    whether ``torch.mps`` (Apple's Metal) is initialized, so ``torch.mps`` is yielded if Metal is
    available. This does no harm, because the functions of ``torch.mps`` allocate nothing. If
    PyTorch is not imported, nothing is yielded.
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
    """Yield PyTorch's default random generators of the CPU and of all devices in use."""
    torch: Any = sys.modules.get("torch")
    if hasattr(torch, "cuda"):
        yield torch.default_generator
    for backend in used_backends():
        if backend is torch.mps:
            yield torch.mps._get_default_mps_generator()  # noqa: SLF001 - as in get_rng_state
        else:
            yield from backend.default_generators
