"""Queries the CUDA driver about this process's devices, if a framework has initialised the driver.

This module never initialises CUDA, because after that a process cannot fork workers that use CUDA.
"""

import ctypes
import uuid
from typing import Final

from energy_callbacks.sensing.frameworks.loaded_frameworks import loaded_library

_SUCCESS: Final = 0  # CUDA_SUCCESS of cuda.h


class _Uuid(ctypes.Structure):
    """The C structure ``CUuuid`` of cuda.h."""

    _fields_ = (("bytes", ctypes.c_ubyte * 16),)


def awake_driver() -> ctypes.CDLL | None:
    """Return the CUDA driver library, or ``None`` if it is not initialised in this process.

    This function initialises no device: it only uses a library that is already loaded, and before
    ``cuInit`` every function only returns ``CUDA_ERROR_NOT_INITIALIZED`` (CUDA driver API,
    "Initialization"). A forked child gets this error too.
    """
    driver = loaded_library("libcuda.so.1")
    if driver is None or driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) != _SUCCESS:
        return None
    return driver


def _count(driver: ctypes.CDLL) -> int:
    count = ctypes.c_int()
    return count.value if driver.cuDeviceGetCount(ctypes.byref(count)) == _SUCCESS else 0


def uuids() -> tuple[str, ...] | None:
    """Return the UUIDs of CUDA's devices 0, 1, ... in this process, without ``GPU-`` or ``MIG-``.

    ``None`` if the driver is not initialised in this process, or does not return all UUIDs.
    """
    driver = awake_driver()
    if driver is None:
        return None
    count = _count(driver)
    known = tuple(filter(None, (_uuid_at(driver, ordinal) for ordinal in range(count))))
    return known if len(known) == count else None


def current_uuid(driver: ctypes.CDLL) -> str | None:
    """Return the UUID of the device of the calling thread's context, as ``uuids`` does."""
    device = ctypes.c_int()
    found = driver.cuCtxGetDevice(ctypes.byref(device)) == _SUCCESS
    return _uuid_of(driver, device) if found else None


def _uuid_at(driver: ctypes.CDLL, ordinal: int) -> str | None:
    device = ctypes.c_int()
    found = driver.cuDeviceGet(ctypes.byref(device), ordinal) == _SUCCESS
    return _uuid_of(driver, device) if found else None


def _uuid_of(driver: ctypes.CDLL, device: ctypes.c_int) -> str | None:
    answer = _Uuid()
    # On a MIG instance, version 2 (CUDA 11.4 and newer) returns the UUID of the instance, version 1
    # that of the card.
    ask = getattr(driver, "cuDeviceGetUuid_v2", None) or driver.cuDeviceGetUuid
    if ask(ctypes.byref(answer), device) != _SUCCESS:
        return None
    return str(uuid.UUID(bytes=bytes(answer.bytes)))


def active_ordinals() -> tuple[int, ...]:
    """Return CUDA's ordinals of the devices on which this process has an active primary context.

    A plain training loop does not state which devices it uses, so all devices with such a context
    count as used.
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
