"""Measures configurations of a GPU of this machine, or of its CPU, with real processes."""

import itertools
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self

import numpy as np

from energy_callbacks.inference.profile import images
from energy_callbacks.inference.profile.gpu_settings import GpuSettings
from energy_callbacks.inference.profile.open_device import LocalDevice, OpenDevice
from energy_callbacks.inference.profile.tenant_process import TenantFailed
from energy_callbacks.inference.profile.tenants import LOAD_S, TenantGroup
from energy_callbacks.inference.records import Configuration, MeasuredWindow, Mode, Phase
from energy_callbacks.sensing.clock import SystemClock


class LocalBench(AbstractContextManager["LocalBench"]):
    """Runs tenants in processes of their own, under a private MPS daemon, and measures windows.

    Tenants go on between two windows of the same configuration, so that windows can follow each
    other without gaps in the load. On a CPU there is no MPS: the share of a tenant is then its
    share of the cores, as the number of PyTorch's threads.

    Args:
        device: what to measure.
        data: folder of images; ``None`` for synthetic images.
        settings: changes clocks and power limits; ``None`` if they must not be changed.
        load_s: time after which a tenant that does not load is given up, s.

    Raises:
        FileNotFoundError: if ``data`` has no images.
    """

    def __init__(
        self,
        device: LocalDevice,
        *,
        data: Path | None = None,
        settings: GpuSettings | None = None,
        load_s: float = LOAD_S,
    ) -> None:
        self._data = data
        self._dataset: Final = images.dataset_name(data)
        self._clock: Final = SystemClock()
        self._device: Final = OpenDevice(device, settings, self._clock)
        self._load_s = load_s
        self._running: tuple[Configuration, Mode, bool] | None = None
        self._close = ExitStack()

    def __enter__(self) -> Self:
        """Open the sensors, and start MPS if the device is a GPU."""
        with ExitStack() as stack:
            opened = stack.enter_context(self._device)
            self._tenants = TenantGroup(
                opened.folder, opened.torch_device, self._data, opened.variables, self._load_s
            )
            stack.callback(self._tenants.end)
            self._close = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """End all processes, and restore the settings of the GPU."""
        self._close.close()

    def measure(
        self,
        configuration: Configuration,
        *,
        window_s: float,
        warmup_s: float,
        phase: Phase = "anchor",
        mode: Mode = "infer",
    ) -> MeasuredWindow:
        """See ``Bench``.

        Raises:
            ValueError: if the configuration needs settings that must not be changed, or that the
                GPU does not accept.
            PowerCapError: if a setting cannot be changed, or if the configuration needs MPS, which
                cannot be started.
        """
        row = MeasuredWindow(
            configuration=configuration,
            source="measured",
            phase=phase,
            mode=mode,
            gpu_uuid=self._device.device.uuid or "",
            gpu_name=self._device.device.name,
            driver=self._device.driver,
            dataset=self._dataset,
            warmup_s=warmup_s,
            window_s=window_s,
        )
        try:
            self._start(configuration, mode, is_static=phase == "static")
            fields = self._window(configuration, window_s, warmup_s) | {"note": self._tenants.note}
        except TenantFailed as failure:
            self._running = None
            self._tenants.end()
            fields = {"status": failure.status, "note": failure.note}
        stamp = datetime.fromtimestamp(self._clock.unix_s(), UTC).isoformat(timespec="milliseconds")
        return replace(row, timestamp_utc=stamp, **fields)

    def _start(self, configuration: Configuration, mode: Mode, *, is_static: bool) -> None:
        """Apply the settings and let the tenants run, unless they already do."""
        if self._running == (configuration, mode, is_static):
            return
        self._running = None
        self._device.check(configuration)
        self._device.apply(configuration)
        self._tenants.load(configuration.tenants, mode)
        if not is_static:
            self._tenants.run()
        self._running = (configuration, mode, is_static)

    def _window(
        self, configuration: Configuration, window_s: float, warmup_s: float
    ) -> dict[str, Any]:
        start_s = self._clock.monotonic_s() + warmup_s
        self._clock.sleep(warmup_s + window_s)
        end_s = start_s + window_s
        ends_s = self._tenants.ends_s()
        fields = self._device.sensors.window(start_s, end_s)
        if self._running is None or self._running[2] or not ends_s:
            return fields
        batches = [tenant.batch for tenant in configuration.tenants]
        return fields | throughput(ends_s, batches, start_s, end_s)


def throughput(
    ends_s: list[list[float]], batches: list[int], start_s: float, end_s: float
) -> dict[str, Any]:
    """Return the fields of ``MeasuredWindow`` about throughput and latency.

    A batch that runs at an edge of the window counts with the share of its time in the window, so
    that few long batches do not make the throughput a multiple of one batch.

    Args:
        ends_s: for each tenant, the start of a batch and then the ends of this and later batches.
        batches: batch size of each tenant.
        start_s: start of the window.
        end_s: end of the window.

    Raises:
        TenantFailed: if a tenant has ended no batch in the window.

    >>> found = throughput([[0.0, 4.0, 8.0, 12.0]], [2], 2.0, 10.0)
    >>> found["throughput_per_s"], found["steps"], found["latency_p50_ms"]
    (0.5, 2, 4000.0)
    """
    rates, latencies_ms = [], []
    for times_s, batch in zip(ends_s, batches, strict=True):
        first, last = np.interp([start_s, end_s], times_s, np.arange(len(times_s)))
        rates.append(float(batch * (last - first) / (end_s - start_s)))
        own_ms = [1e3 * (b - a) for a, b in itertools.pairwise(times_s) if start_s < b <= end_s]
        if not own_ms:
            note = f"a tenant has ended no batch in the window of {end_s - start_s:.3g} s"
            raise TenantFailed("timeout", note)
        latencies_ms += own_ms
    p50, p95, p99 = (float(one) for one in np.quantile(latencies_ms, (0.5, 0.95, 0.99)))
    return {
        "steps": len(latencies_ms),
        "throughput_per_s": sum(rates),
        "tenant_throughputs_per_s": tuple(rates),
        "latency_p50_ms": p50,
        "latency_p95_ms": p95,
        "latency_p99_ms": p99,
    }
