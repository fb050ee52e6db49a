"""Queries the HIP runtime about this process's devices, if PyTorch has initialised it.

This module never initialises HIP, because after that a process cannot fork workers that use HIP.
"""

import ctypes
from typing import Final

from energy_callbacks.sensing.frameworks import loaded_frameworks

_SUCCESS: Final = 0  # hipSuccess of hip_runtime_api.h
_ADDRESS_BYTES: Final = 64


def pci_addresses() -> tuple[str, ...] | None:
    """Return the PCI addresses of HIP's devices 0, 1, ..., such as ``0000:3b:00.0``.

    ``None`` if the runtime is not initialised in this process, or does not return all addresses.
    Every function of HIP initialises it (HIP documentation, "Initialization"), so PyTorch is asked
    first.
    """
    # The library is searched last, because that reads a long file.
    is_awake = loaded_frameworks.awake_torch() is not None
    library = loaded_frameworks.hip_library() if is_awake else None
    hip = loaded_frameworks.loaded_library(library) if library else None
    if hip is None:
        return None
    count = ctypes.c_int()
    if hip.hipGetDeviceCount(ctypes.byref(count)) != _SUCCESS:
        return None
    known = tuple(filter(None, (_address(hip, ordinal) for ordinal in range(count.value))))
    return known if len(known) == count.value else None


def _address(hip: ctypes.CDLL, ordinal: int) -> str | None:
    answer = ctypes.create_string_buffer(_ADDRESS_BYTES)
    if hip.hipDeviceGetPCIBusId(answer, _ADDRESS_BYTES, ordinal) != _SUCCESS:
        return None
    return answer.value.decode().lower()
