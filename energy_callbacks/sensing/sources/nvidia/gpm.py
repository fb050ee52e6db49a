"""Reads from GPM counters how active the parts of an NVIDIA card are (Hopper and newer).

GPM is NVIDIA's GPU performance monitoring. From two samples, the driver computes the means of four
quantities over the time between the samples: activity and occupancy of the multiprocessors,
activity of the tensor cores, and the used share of the memory bandwidth. Their names follow the
profiling fields of NVIDIA's Data Center GPU Manager, DCGM (DCGM_FI_PROF_SM_ACTIVE, SM_OCCUPANCY,
PIPE_TENSOR_ACTIVE, DRAM_ACTIVE). The counters need no CUPTI (NVIDIA's profiling library) and
disturb no profiler. On some systems only root may read them.
"""

from typing import Any, Final

from energy_callbacks.core.records import Channel, Quantity, Reading, Sensor
from energy_callbacks.sensing.clock import PUNCTUAL_S
from energy_callbacks.sensing.schedule import BEAT_S, next_reading_s
from energy_callbacks.sensing.sources.nvidia.card import NvmlCard, answer, known

# Interval between two samples, in multiples of ``schedule.BEAT_S``. Taking a sample takes 0.2 ms
# (H200, driver 580). NVML requires more than 100 ms between two samples, because it refreshes its
# values only that often (nvml.h, nvmlGpmSampleGet). The values of a sample may therefore be
# 100 ms old. This matters little, because the interval is 1.6 s.
_BEATS: Final = 2
_INTERVAL_S: Final = _BEATS * BEAT_S
_METRICS: Final[dict[Quantity, str]] = {
    "sm_active": "SM_UTIL",
    "sm_occupancy": "SM_OCCUPANCY",
    "tensor_active": "ANY_TENSOR_UTIL",
    "dram_active": "DRAM_BW_UTIL",
}
_NOTE: Final = (
    "this user has no permission to read the activity of multiprocessors, tensor cores and "
    "memory; root has"
)


def activity(card: NvmlCard) -> "Activity | None":
    """Return a reader of all metrics; ``None`` if the card has no GPM counters (before Hopper).

    Raises:
        NVMLError: if the driver returns no sample.
    """
    is_supported = card.nvml.nvmlGpmQueryDeviceSupport(card.handle).isSupportedDevice
    return Activity(card) if is_supported else None


def permission_note(nvml: Any, handle: Any) -> tuple[str, ...]:
    """Return a note for the report if a card has GPM counters that this user may not read.

    The tuple is empty otherwise.
    """
    try:
        if nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
            sample = nvml.nvmlGpmSampleAlloc()
            try:
                nvml.nvmlGpmSampleGet(handle, sample)
            finally:
                nvml.nvmlGpmSampleFree(sample)
    except nvml.NVMLError as error:
        return (_NOTE,) if isinstance(error, nvml.NVMLError_NoPermission) else ()
    return ()


class Activity:
    """Reads the means of all metrics over the time between the two newest samples of a card.

    Attributes:
        channels: one channel for each metric.
        due_s: monotonic time at which the next sample is due.

    Raises:
        NVMLError: if the driver returns no first sample.
    """

    def __init__(self, card: NvmlCard) -> None:
        nvml = card.nvml
        self._card = card
        self.channels = tuple(_channel(card, quantity) for quantity in _METRICS)
        self._samples = [nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()]
        try:
            self._take_sample()
        except nvml.NVMLError:
            self._free()
            raise
        # Samples are not freed in a finalizer, because the garbage collector may run it while this
        # thread holds pynvml's lock.
        card.at_close.callback(self._free)

    def _free(self) -> None:
        for sample in self._samples:
            # ``answer`` ignores errors of NVML, such as those after the driver was unloaded.
            answer(self._card.nvml, self._card.nvml.nvmlGpmSampleFree, sample)

    def read(self, *, at_once: bool = False) -> list[Reading]:  # noqa: ARG002 - see docstring
        """Take a sample if it is due, and return the mean of each metric since the last sample.

        If no sample is due, return an empty list. ``at_once`` has no effect, because NVML computes
        means only from samples that are more than 100 ms apart.
        """
        if self._card.clock.monotonic_s() < self.due_s - PUNCTUAL_S:
            return []
        t_s, t_error_s = self._take_sample()
        shares = self._shares()
        return [
            Reading(channel, t_s, shares[channel.quantity], t_error_s)
            for channel in self.channels
            if channel.quantity in shares
        ]

    def _take_sample(self) -> tuple[float, float]:
        """Replace the older sample by a new one; return the new sample's time and time error, s."""
        card = self._card
        start_s = card.clock.monotonic_s()
        self.due_s = next_reading_s(start_s, _BEATS)
        card.nvml.nvmlGpmSampleGet(card.handle, self._samples[0])
        self._samples.reverse()
        end_s = card.clock.monotonic_s()
        return (start_s + end_s) / 2.0, (end_s - start_s) / 2.0

    def _shares(self) -> dict[Quantity, float]:
        nvml = self._card.nvml
        query = nvml.c_nvmlGpmMetricsGet_t()
        query.version, query.numMetrics = nvml.NVML_GPM_METRICS_GET_VERSION, len(_METRICS)
        query.sample1, query.sample2 = self._samples
        for place, name in enumerate(_METRICS.values()):
            query.metrics[place].metricId = getattr(nvml, f"NVML_GPM_METRIC_{name}")
        nvml.nvmlGpmMetricsGet(query)
        return {
            quantity: metric.value / 100.0
            for quantity, metric in zip(_METRICS, query.metrics, strict=False)
            if metric.nvmlReturn == nvml.NVML_SUCCESS and known(metric.value) is not None
        }


def _channel(card: NvmlCard, quantity: Quantity) -> Channel:
    sensor = Sensor(
        name=f"nvmlGpmMetricsGet {_METRICS[quantity]}",
        period_s=_INTERVAL_S,
        window_s=_INTERVAL_S,
        citation="NVML: mean between two samples",
    )
    return Channel(device=card.device, quantity=quantity, kind="mean", sensor=sensor)
