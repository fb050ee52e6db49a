"""Reads device memory from the frameworks' allocators, without initialising any framework.

Only frameworks that the training has imported are queried, and only after they have initialised
their devices themselves: an earlier query would initialise CUDA, which breaks a later fork and
takes memory. A peak is the highest value since the user last reset it; this module never resets it.

- PyTorch: ``torch.cuda.memory_stats`` of each device on which this process has a CUDA context.
  ``memory_allocated`` and ``max_memory_allocated`` read the same values at twice the cost.
- TensorFlow: ``tf.config.experimental.get_memory_info`` of each GPU.
- JAX: ``Device.memory_stats`` of each local device; CPU devices have no statistics.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from energy_callbacks.core.errors import ReadingMissed
from energy_callbacks.core.records import Channel, Device, Reading, Sensor
from energy_callbacks.sensing.clock import Clock
from energy_callbacks.sensing.frameworks.loaded_frameworks import (
    awake_jax,
    awake_tensorflow,
    awake_torch,
)
from energy_callbacks.sensing.schedule import until_reading_s

_DEVICE = Device(
    key="allocator",
    kind="allocator",
    scope=None,
    name="device memory of the framework",
    notes=(
        "sum over this process's devices and frameworks",
        "upper bound if there are several devices, which may reach their peaks at different times",
    ),
)
_SENSOR = Sensor(name="the framework's allocator statistics")
_ALLOCATED = Channel(device=_DEVICE, quantity="allocated", kind="gauge", sensor=_SENSOR)
_PEAK = Channel(device=_DEVICE, quantity="peak_allocated", kind="gauge", sensor=_SENSOR)

_TORCH_KEY: Final = "allocated_bytes.all"
_Bytes = tuple[int, int]  # allocated now, peak


class AllocatorSource:
    """Reports the bytes that tensors occupy on this process's devices.

    Args:
        clock: clock that gives the times of the readings.
    """

    name = "framework allocator"

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._read_s = clock.monotonic_s()

    @property
    def interval_s(self) -> float:
        """Seconds from the last reading to the second common reading moment after it.

        ``sensing/schedule.py`` defines these moments, at which most sources are read together.
        Reading at every second moment is enough, because the allocators keep peaks.
        """
        return until_reading_s(self._read_s, beats=2)

    def open(self) -> Sequence[Channel]:
        """Return the channels; succeeds even if no framework has initialised its devices yet."""
        return [_ALLOCATED, _PEAK]

    def read(self) -> Sequence[Reading]:
        """Return allocated and peak bytes; an empty list while no framework uses a device.

        Raises:
            ReadingMissed: if the call of a framework failed.
        """
        self._read_s = self._clock.monotonic_s()
        found = [device for ways in _FRAMEWORKS for device in _asked(*ways)]
        if not found:
            return []
        t_s = self._clock.monotonic_s()
        allocated_bytes = float(sum(allocated for allocated, _ in found))
        peak_bytes = float(sum(peak for _, peak in found))
        return [Reading(_ALLOCATED, t_s, allocated_bytes), Reading(_PEAK, t_s, peak_bytes)]

    def close(self) -> None:
        """See ``Source.close``."""


def _asked(awake: Callable[[], Any], ask: Callable[[Any], Iterator[_Bytes]]) -> list[_Bytes]:
    """Return the bytes of each device of a framework; empty before its devices are initialised.

    Args:
        awake: returns the framework's module; ``None`` until its devices are initialised.
        ask: yields the bytes of each device, given the module.
    """
    try:
        framework = awake()
        return [] if framework is None else list(ask(framework))
    except Exception as error:
        # A framework may raise anything (lost device, unfinished import on another thread).
        raise ReadingMissed(f"{ask.__name__} failed: {error!r}; it is tried again later") from error


def _torch(torch: Any) -> Iterator[_Bytes]:
    for index in range(torch.cuda.device_count()):
        # With the cudaMallocAsync back end, querying an unused device would create a context on it,
        # which takes hundreds of MB.
        if torch._C._cuda_hasPrimaryContext(index):  # noqa: SLF001 - no public equivalent
            stats = torch.cuda.memory_stats(index)
            yield stats.get(f"{_TORCH_KEY}.current", 0), stats.get(f"{_TORCH_KEY}.peak", 0)


def _tensorflow(tensorflow: Any) -> Iterator[_Bytes]:
    for index in range(len(tensorflow.config.list_logical_devices("GPU"))):
        info = tensorflow.config.experimental.get_memory_info(f"GPU:{index}")
        yield info["current"], info["peak"]


def _jax(jax: Any) -> Iterator[_Bytes]:
    for device in jax.local_devices():
        stats = device.memory_stats()
        if stats:
            yield stats["bytes_in_use"], stats["peak_bytes_in_use"]


_FRAMEWORKS = ((awake_torch, _torch), (awake_tensorflow, _tensorflow), (awake_jax, _jax))
