"""Names the devices that a framework uses, for ``discovery.discover``."""

from collections.abc import Iterable
from typing import Final

_NAMED: Final = ("xpu", "mps")


def device_names(kind: str, ordinals: Iterable[int]) -> tuple[int | str, ...]:
    """Return the ordinals themselves for CUDA and HIP, and names for other GPUs of PyTorch.

    Devices that are not GPUs, such as CPUs, are left out.

    Args:
        kind: PyTorch's type of the devices, such as ``cuda``; also HIP's devices have this type.
        ordinals: numbers of the devices among those of their kind.

    >>> device_names("cuda", [0, 1])
    (0, 1)
    >>> device_names("xpu", [0, 1])
    ('xpu:0', 'xpu:1')
    >>> device_names("cpu", [0])
    ()
    """
    if kind == "cuda":
        return tuple(ordinals)
    return tuple(f"{kind}:{ordinal}" for ordinal in ordinals) if kind in _NAMED else ()
