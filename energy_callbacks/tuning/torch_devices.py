"""The devices that PyTorch has in use in this process, without initialising any of them.

CUDA that is initialised too early breaks a later fork and takes hundreds of megabytes.
"""

from collections.abc import Iterator
from typing import Any


def awake_backends(torch: Any) -> Iterator[Any]:
    """``torch.cuda`` and its like, if this process has initialised them.

    Apple's Metal has no such query: there it is enough that the machine has it, which costs
    nothing anywhere else.

    Args:
        torch: the module, which the training has imported.
    """
    for name in ("cuda", "xpu"):
        backend = getattr(torch, name, None)  # torch.xpu is younger than the oldest PyTorch we take
        if backend is not None and backend.is_initialized():
            yield backend
    if torch.backends.mps.is_available():
        yield torch.mps


def awake_generators(torch: Any) -> Iterator[Any]:
    """The default random generators of the CPU and of all devices in use."""
    yield torch.default_generator
    for backend in awake_backends(torch):
        if backend is torch.mps:
            yield torch.mps._get_default_mps_generator()  # noqa: SLF001 - as its get_rng_state does
        else:
            yield from backend.default_generators
