"""Activity of an NVIDIA card's units: its GPM counters, on Hopper and newer.

Two samples bracket a span of time, and the driver says what share of it the multiprocessors, the
tensor cores and the memory were at work. The names are those of DCGM's profiling fields
(DCGM_FI_PROF_SM_ACTIVE, SM_OCCUPANCY, PIPE_TENSOR_ACTIVE, DRAM_ACTIVE). Needs no CUPTI and
disturbs no profiler; some systems permit it to root alone.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from energy_callbacks.core.records import Channel, Quantity, Reading, Sensor
from energy_callbacks.sensing.clock import PUNCTUAL_S
from energy_callbacks.sensing.schedule import BEAT_S, next_reading_s
from energy_callbacks.sensing.sources.nvidia.readers import NvmlCard, Reader, known

# A sample costs 0.2 ms (H200, driver 580); the driver's own values are up to 100 ms old
# (nvml.h, nvmlGpmSampleGet: samples should lie more than 100 ms apart).
_BEATS: Final = 2
_INTERVAL_S: Final = _BEATS * BEAT_S
_METRICS: Final[dict[Quantity, str]] = {
    "sm_active": "SM_UTIL",
    "sm_occupancy": "SM_OCCUPANCY",
    "tensor_active": "ANY_TENSOR_UTIL",
    "dram_active": "DRAM_BW_UTIL",
}
_NOTE: Final = (
    "the activity of multiprocessors, tensor cores and memory is not permitted to this user; "
    "root may read it"
)


def activity(card: NvmlCard) -> tuple[Reader, ...]:
    """A reader for each metric that the card offers to this user; none before Hopper.

    Raises:
        NVMLError: if the card is gone.
    """
    nvml = card.nvml
    try:
        if not nvml.nvmlGpmQueryDeviceSupport(card.handle).isSupportedDevice:
            return ()
        samples = _Samples(card)
    except nvml.NVMLError as error:
        if card.is_gone(error):
            raise
        return ()
    return tuple(_Activity(samples, quantity) for quantity in _METRICS)


def permission_note(nvml: Any, handle: Any) -> tuple[str, ...]:
    """What the report must say if a card has these counters and this user may not read them."""
    try:
        if nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
            sample = nvml.nvmlGpmSampleAlloc()
            try:
                nvml.nvmlGpmSampleGet(handle, sample)
            finally:
                nvml.nvmlGpmSampleFree(sample)
    except nvml.NVMLError_NoPermission:
        return (_NOTE,)
    except nvml.NVMLError:
        return ()
    return ()


class _Samples:
    """The two newest samples of a card; what lies between them waits for the readers.

    Raises:
        NVMLError: if the card gives no sample.
    """

    def __init__(self, card: NvmlCard) -> None:
        nvml = card.nvml
        self.card = card
        self._pair = [nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()]
        # Not in a finalizer: the collector may run it while this thread holds pynvml's lock.
        free = partial(_free, nvml, tuple(self._pair))
        self._waiting: dict[Quantity, tuple[float, float, float]] = {}
        try:
            self._take_sample()
        except nvml.NVMLError:
            free()
            raise
        card.at_close.append(free)

    @property
    def due_s(self) -> float:
        """When the next sample is wanted."""
        return self._due_s

    def is_waiting(self, quantity: Quantity) -> bool:
        """Whether a value has not been taken yet."""
        return quantity in self._waiting

    def taken(self, quantity: Quantity) -> tuple[float, float, float] | None:
        """Moment, its error and mean since the sample before, if it is new."""
        if self.card.clock.monotonic_s() >= self._due_s - PUNCTUAL_S:
            t_s, t_error_s = self._take_sample()
            shares = self._shares()
            self._waiting = {key: (t_s, t_error_s, share) for key, share in shares.items()}
        return self._waiting.pop(quantity, None)

    def _take_sample(self) -> tuple[float, float]:
        """Overwrite the older sample; one that fails is asked for again at its next turn."""
        card = self.card
        start_s = card.clock.monotonic_s()
        self._due_s = next_reading_s(start_s, _BEATS)
        card.nvml.nvmlGpmSampleGet(card.handle, self._pair[0])
        self._pair.reverse()
        end_s = card.clock.monotonic_s()
        return (start_s + end_s) / 2.0, (end_s - start_s) / 2.0

    def _shares(self) -> dict[Quantity, float]:
        nvml = self.card.nvml
        asked = nvml.c_nvmlGpmMetricsGet_t()
        asked.version, asked.numMetrics = nvml.NVML_GPM_METRICS_GET_VERSION, len(_METRICS)
        asked.sample1, asked.sample2 = self._pair
        for place, name in enumerate(_METRICS.values()):
            asked.metrics[place].metricId = getattr(nvml, f"NVML_GPM_METRIC_{name}")
        nvml.nvmlGpmMetricsGet(asked)
        return {
            quantity: metric.value / 100.0
            for quantity, metric in zip(_METRICS, asked.metrics, strict=False)
            if metric.nvmlReturn == nvml.NVML_SUCCESS and known(metric.value) is not None
        }


def _free(nvml: Any, samples: Sequence[Any]) -> None:
    for sample in samples:
        try:
            nvml.nvmlGpmSampleFree(sample)
        except nvml.NVMLError:
            return  # the driver was unloaded, and took them along


class _Activity:
    """One metric: its mean since the reading before."""

    def __init__(self, samples: _Samples, quantity: Quantity) -> None:
        self._samples = samples
        self._quantity: Quantity = quantity
        sensor = Sensor(
            name=f"nvmlGpmMetricsGet {_METRICS[quantity]}",
            period_s=_INTERVAL_S,
            window_s=_INTERVAL_S,
            citation="NVML: mean between two samples",
        )
        device = samples.card.device
        self.channel = Channel(device=device, quantity=quantity, kind="mean", sensor=sensor)

    @property
    def due_s(self) -> float:
        """When the next value is wanted: at once, if one has been read with another metric's."""
        is_waiting = self._samples.is_waiting(self._quantity)
        return float("-inf") if is_waiting else self._samples.due_s

    def read(self, *, at_once: bool = False) -> list[Reading]:  # noqa: ARG002 - a mean needs its time
        """The newest mean, if it is new."""
        found = self._samples.taken(self._quantity)
        if found is None:
            return []
        t_s, t_error_s, share = found
        return [Reading(self.channel, t_s, share, t_error_s)]
