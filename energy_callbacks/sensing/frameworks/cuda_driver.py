"""Queries the CUDA driver for its devices, only if a framework has initialised it.

Nothing here initialises CUDA, because a process that has done so can no longer fork workers that
use it.
"""

import ctypes
import os
import uuid
from typing import Final

_SUCCESS: Final = 0  # CUDA_SUCCESS of cuda.h


class _Uuid(ctypes.Structure):
    """``CUuuid`` of cuda.h."""

    _fields_ = (("bytes", ctypes.c_ubyte * 16),)


def awake_driver() -> ctypes.CDLL | None:
    """Return the CUDA driver library, if a framework has initialised it in this process.

    ``RTLD_NOLOAD`` opens only a library that is already open, and before ``cuInit`` every function
    returns ``CUDA_ERROR_NOT_INITIALIZED`` (CUDA driver API, "Initialization"), in a forked child
    too. Therefore this query initialises no device.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except (OSError, AttributeError):  # not loaded, or not a Unix
        return None
    return driver if driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) == _SUCCESS else None


def _count(driver: ctypes.CDLL) -> int:
    count = ctypes.c_int()
    return count.value if driver.cuDeviceGetCount(ctypes.byref(count)) == _SUCCESS else 0


def uuids() -> tuple[str, ...] | None:
    """Return the UUIDs of CUDA's devices 0, 1, ... in this process, without ``GPU-`` or ``MIG-``.

    ``None`` if the driver is not initialised in this process.
    """
    driver = awake_driver()
    if driver is None:
        return None
    count = _count(driver)
    known = tuple(filter(None, (_uuid_of(driver, ordinal) for ordinal in range(count))))
    return known if len(known) == count else None


def _uuid_of(driver: ctypes.CDLL, ordinal: int) -> str | None:
    device, answer = ctypes.c_int(), _Uuid()
    # The second version names the MIG instance, the first its card (CUDA 11.4 and newer).
    ask = getattr(driver, "cuDeviceGetUuid_v2", None) or driver.cuDeviceGetUuid
    if driver.cuDeviceGet(ctypes.byref(device), ordinal) != _SUCCESS:
        return None
    if ask(ctypes.byref(answer), device) != _SUCCESS:
        return None
    return str(uuid.UUID(bytes=bytes(answer.bytes)))


def active_ordinals() -> tuple[int, ...]:
    """Return CUDA's ordinals of the devices on which this process already has a context.

    In a plain loop, which declares no devices, those with a context count as used.
    """
    driver = awake_driver()
    if driver is None:
        return ()
    return tuple(ordinal for ordinal in range(_count(driver)) if _is_active(driver, ordinal))


def _is_active(driver: ctypes.CDLL, ordinal: int) -> bool:
    device, flags, active = ctypes.c_int(), ctypes.c_uint(), ctypes.c_int()
    if driver.cuDeviceGet(ctypes.byref(device), ordinal) != _SUCCESS:
        return False
    found = driver.cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(active))
    return found == _SUCCESS and active.value == 1
