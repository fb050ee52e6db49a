"""The devices that a training uses, asked of its own framework without initialising it.

Memory is that of the fullest device: PyTorch's allocator reports its maximum, JAX's and
TensorFlow's do too; without a device it is this process's resident memory, and what the machine
or its container grants.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from energy_callbacks.sensing.frameworks.loaded_frameworks import awake_jax, awake_tensorflow
from energy_callbacks.tuning.torch_devices import awake_backends

_STATUS: Final = Path("/proc/self/status")
_CLEAR_REFS: Final = Path("/proc/self/clear_refs")
_RESET_PEAK: Final = "5"  # proc_pid_clear_refs(5): resets the peak resident set size
_LIMIT: Final = Path("/sys/fs/cgroup/memory.max")  # control groups, version 2


_jax_peaks: dict[int, int] = {}  # at the last reset, by number of the device


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Of one device, in bytes.

    Attributes:
        peak_bytes: the most that was in use since ``reset_peak``, by others too; ``None`` if
            it cannot be distinguished from an earlier peak.
        size_bytes: what there is.
    """

    peak_bytes: int | None
    size_bytes: int

    @property
    def share(self) -> float:
        """How full it was, as far as that is known."""
        return (self.peak_bytes or 0) / self.size_bytes


def synchronise(result: Any = None) -> None:
    """Wait until all devices have finished their work.

    Args:
        result: of the last step; arrays of JAX are waited for by themselves.
    """
    for backend in awake_backends(torch) if (torch := _torch()) is not None else ():
        for which in _in_use(backend):
            backend.synchronize(*which)
    if (tensorflow := awake_tensorflow()) is not None:
        tensorflow.test.experimental.sync_devices()
    if (jax := awake_jax()) is not None:
        jax.block_until_ready(result)


def reset_peak() -> None:
    """From now on the peak is a new one, and what allocators keep for later is given back."""
    for backend in awake_backends(torch) if (torch := _torch()) is not None else ():
        backend.empty_cache()  # else a peak would be that of the largest size so far
        for which in _in_use(backend):
            if hasattr(backend, "reset_peak_memory_stats"):
                backend.reset_peak_memory_stats(*which)
    if (tensorflow := awake_tensorflow()) is not None:
        for index in range(len(tensorflow.config.list_logical_devices("GPU"))):
            tensorflow.config.experimental.reset_memory_stats(f"GPU:{index}")
    _jax_peaks.update((number, stats["peak_bytes_in_use"]) for number, stats in _stats_of_jax())
    try:
        _CLEAR_REFS.write_text(_RESET_PEAK)
    except OSError:
        return  # not Linux, or not ours to write: the peak is that of the process


def forget_compiled() -> None:
    """Let PyTorch compile anew what runs next.

    For what it has compiled at two sizes it makes code for any size, which no training has that
    runs at one (torch.compile, ``dynamic=None``).
    """
    if "torch._dynamo" in sys.modules and (torch := _torch()) is not None:
        torch.compiler.reset()


def memory() -> DeviceMemory | None:
    """The fullest device since ``reset_peak``; ``None`` if nothing is known."""
    found = [*_of_torch(), *_of_tensorflow(), *_of_jax()] or list(_of_host())
    return max(found, key=lambda one: one.share, default=None)


def _torch() -> Any:
    torch = sys.modules.get("torch")
    return torch if hasattr(torch, "cuda") else None


def _in_use(backend: Any) -> Iterator[tuple[int, ...]]:
    """Devices of PyTorch on which this process has a context: asking CUDA of others makes one.

    As arguments of the functions of ``backend``: Apple's has one device, without a number.
    """
    if not hasattr(backend, "device_count") or backend.__name__ == "torch.mps":
        yield ()
        return
    has_context = getattr(sys.modules["torch"]._C, "_cuda_hasPrimaryContext", None)  # noqa: SLF001
    for index in range(backend.device_count()):
        if backend.__name__ != "torch.cuda" or has_context is None or has_context(index):
            yield (index,)


def _of_torch() -> Iterator[DeviceMemory]:
    for backend in awake_backends(torch) if (torch := _torch()) is not None else ():
        if not hasattr(backend, "mem_get_info"):
            continue
        for which in _in_use(backend):
            free_bytes, size_bytes = backend.mem_get_info(*which)
            # What the allocator held at most, and what lies beside it: contexts, other processes.
            beside_bytes = size_bytes - free_bytes - backend.memory_reserved(*which)
            yield DeviceMemory(beside_bytes + backend.max_memory_reserved(*which), size_bytes)


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
    """Size of the memory of CUDA's device of this number, by the driver that is awake."""
    import ctypes

    from energy_callbacks.sensing.frameworks.cuda_driver import awake_driver

    driver = awake_driver()
    device, size_bytes = ctypes.c_int(), ctypes.c_size_t()
    if driver is None or driver.cuDeviceGet(ctypes.byref(device), ordinal):
        return None
    failed = driver.cuDeviceTotalMem_v2(ctypes.byref(size_bytes), device)
    return None if failed else int(size_bytes.value)


def _of_jax() -> Iterator[DeviceMemory]:
    """JAX never resets a peak: one that has not risen is that of an earlier, larger size."""
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
    if (limit := _read(_LIMIT)).isdigit():
        size_bytes = min(size_bytes, int(limit))
    for line in lines:
        name, _, value = line.partition(":")
        if name == "VmHWM":  # proc_pid_status(5): peak resident set size, in kB of 1024 bytes
            yield DeviceMemory(int(value.split()[0]) * 1024, size_bytes)


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
