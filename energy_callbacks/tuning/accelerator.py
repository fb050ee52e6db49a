"""Measures the memory of the devices that a training uses, and synchronizes the devices.

The functions query the training's own framework and initialize no device. Memory is reported for
the fullest device (see ``DeviceMemory.share``). If no device reports its memory, the resident
memory of this process is reported; the size is then the memory of the machine, or the limit of the
container if that is smaller.
"""

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from energy_callbacks.sensing.frameworks.loaded_frameworks import awake_jax, awake_tensorflow
from energy_callbacks.tuning.torch_devices import used_backends

_STATUS: Final = Path("/proc/self/status")
_CLEAR_REFS: Final = Path("/proc/self/clear_refs")
_RESET_PEAK: Final = "5"  # proc_pid_clear_refs(5): resets the peak resident set size
_LIMIT: Final = Path("/sys/fs/cgroup/memory.max")  # control groups, version 2


_jax_peaks: dict[int, int] = {}  # peak bytes at the last reset, by device number


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Memory of one device, in bytes.

    Attributes:
        peak_bytes: highest use since ``reset_peak``. For PyTorch it includes the memory of other
            processes. For JAX it is ``None`` if the use has not exceeded an earlier peak.
        size_bytes: total memory; for JAX, the part of it that JAX may use.
    """

    peak_bytes: int | None
    size_bytes: int

    @property
    def share(self) -> float:
        """Peak as a share of the total; 0 if the peak is unknown."""
        return (self.peak_bytes or 0) / self.size_bytes


def synchronise(result: Any = None) -> None:
    """Wait until all devices have finished their work.

    Args:
        result: result of the last step; JAX waits for the arrays in it.
    """
    for backend, device in _torch_devices():
        backend.synchronize(*device)
    if (tensorflow := awake_tensorflow()) is not None:
        tensorflow.test.experimental.sync_devices()
    if (jax := awake_jax()) is not None:
        jax.block_until_ready(result)


def reset_peak() -> None:
    """Release unused memory of PyTorch's allocators, and start a new measurement of the peak."""
    for backend in used_backends():
        backend.empty_cache()  # otherwise the peak would be that of the largest batch size so far
    for backend, device in _torch_devices():
        if hasattr(backend, "reset_peak_memory_stats"):
            backend.reset_peak_memory_stats(*device)
    if (tensorflow := awake_tensorflow()) is not None:
        for index in range(len(tensorflow.config.list_logical_devices("GPU"))):
            tensorflow.config.experimental.reset_memory_stats(f"GPU:{index}")
    _jax_peaks.update((number, stats["peak_bytes_in_use"]) for number, stats in _stats_of_jax())
    # Not Linux, or no permission: the earlier peak of the process remains.
    with contextlib.suppress(OSError):
        _CLEAR_REFS.write_text(_RESET_PEAK)


def forget_compiled() -> None:
    """Make PyTorch compile the next step again.

    After two different batch sizes PyTorch compiles code for any batch size (torch.compile,
    ``dynamic=None``). A training that runs at one batch size never uses such code.
    """
    torch: Any = sys.modules.get("torch")
    if "torch._dynamo" in sys.modules and hasattr(torch, "compiler"):
        torch.compiler.reset()


def memory() -> DeviceMemory | None:
    """Return the memory of the fullest device since ``reset_peak``; ``None`` if unknown."""
    devices = [*_of_torch(), *_of_tensorflow(), *_of_jax()] or list(_of_host())
    return max(devices, key=lambda device: device.share, default=None)


def _torch_devices() -> Iterator[tuple[Any, tuple[int, ...]]]:
    """Yield (backend, arguments) for each PyTorch device; the arguments select the device.

    On CUDA only devices with a context are yielded, because a call for another device would create
    a context. Apple's backend has a single device without a number.
    """
    for backend in used_backends():
        if not hasattr(backend, "device_count") or backend.__name__ == "torch.mps":
            yield backend, ()
            continue
        has_context = None
        if backend.__name__ == "torch.cuda":
            has_context = getattr(sys.modules["torch"]._C, "_cuda_hasPrimaryContext", None)  # noqa: SLF001
        for index in range(backend.device_count()):
            if has_context is None or has_context(index):
                yield backend, (index,)


def _of_torch() -> Iterator[DeviceMemory]:
    for backend, device in _torch_devices():
        if hasattr(backend, "mem_get_info"):
            free_bytes, size_bytes = backend.mem_get_info(*device)
            # Memory of contexts and other processes, to which the allocator's peak is added.
            other_bytes = size_bytes - free_bytes - backend.memory_reserved(*device)
            yield DeviceMemory(other_bytes + backend.max_memory_reserved(*device), size_bytes)


def _of_tensorflow() -> Iterator[DeviceMemory]:
    tensorflow = awake_tensorflow()
    if tensorflow is None:
        return
    for index in range(len(tensorflow.config.list_logical_devices("GPU"))):
        peak_bytes = tensorflow.config.experimental.get_memory_info(f"GPU:{index}")["peak"]
        size_bytes = _card_bytes(index)
        if size_bytes:
            yield DeviceMemory(peak_bytes, size_bytes)


def _card_bytes(ordinal: int) -> int | None:
    """Return the total memory of a CUDA device in bytes; ``None`` if CUDA is not initialized."""
    import ctypes

    from energy_callbacks.sensing.frameworks.cuda_driver import awake_driver

    driver = awake_driver()
    device, size_bytes = ctypes.c_int(), ctypes.c_size_t()
    if driver is None or driver.cuDeviceGet(ctypes.byref(device), ordinal):
        return None
    failed = driver.cuDeviceTotalMem_v2(ctypes.byref(size_bytes), device)
    return None if failed else int(size_bytes.value)


def _of_jax() -> Iterator[DeviceMemory]:
    """Yield JAX's devices. JAX cannot reset a peak, so a peak that has not risen is unknown."""
    for number, stats in _stats_of_jax():
        peak_bytes = stats["peak_bytes_in_use"]
        is_new = peak_bytes > _jax_peaks.get(number, 0)
        yield DeviceMemory(peak_bytes if is_new else None, stats["bytes_limit"])


def _stats_of_jax() -> Iterator[tuple[int, dict[str, int]]]:
    jax = awake_jax()
    for device in jax.local_devices() if jax is not None else ():
        stats = device.memory_stats() or {}
        if stats.get("bytes_limit"):
            yield device.id, stats


def _of_host() -> Iterator[DeviceMemory]:
    import psutil

    size_bytes = psutil.virtual_memory().total
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return
    with contextlib.suppress(OSError, ValueError):  # no control group, or no limit ("max")
        size_bytes = min(size_bytes, int(_LIMIT.read_text()))
    for line in lines:
        name, _, value = line.partition(":")
        if name == "VmHWM":  # proc_pid_status(5): peak resident set size, in kB of 1024 bytes
            yield DeviceMemory(int(value.split()[0]) * 1024, size_bytes)
