"""Gets the power readings and the measured energy of the device that this process trains on."""

import sys
from typing import Any

import numpy as np

from energy_callbacks.accounting.attempt import ActiveAttempt
from energy_callbacks.core.records import Device, Sensor
from energy_callbacks.profiling.phases.exposure import Spans
from energy_callbacks.profiling.phases.fit import Readings


def device_of(meter: ActiveAttempt) -> str | None:
    """Return the key of the device that this process trains on: its GPU, or else the CPU.

    Returns ``None`` if that device has no channel of power or energy, or if there are several
    devices and the device in use is unknown.
    """
    metered = set(meter.timeline.metered)
    devices = [device for device in meter.devices if device.key in metered]
    gpus = [device for device in devices if device.kind == "gpu"]
    torch = sys.modules.get("torch")
    uuid = _current_gpu(torch)
    if uuid is not None:
        return next((device.key for device in gpus if _has_uuid(device, uuid)), None)
    hosts = [device for device in devices if device.kind in ("cpu", "process")]
    trains_on_cpu = torch is not None and not torch.cuda.is_available()
    candidates = hosts if hosts and (not gpus or trains_on_cpu) else gpus
    return candidates[0].key if len(candidates) == 1 else None


def _current_gpu(torch: Any) -> str | None:
    """Return the UUID of the GPU that PyTorch uses; ``None`` if there is no such GPU or UUID."""
    if torch is None or not torch.cuda.is_initialized():
        return None
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return str(getattr(properties, "uuid", "")) or None


def _has_uuid(device: Device, uuid: str) -> bool:
    return any(known.endswith(uuid) for known in (device.uuid or "", *device.instances))


def readings(meter: ActiveAttempt, device: str, spans: Spans) -> Readings | None:
    """Return the power readings of a device; ``None`` if they are not all measured by sensors.

    For a device without readings of momentary power, the mean powers between its energy readings
    are returned. Every call also makes the timeline stop keeping raw power readings of the device.
    """
    timeline = meter.timeline
    followed = np.array(timeline.leave_power(device)).reshape(-1, 2)
    channels = {channel.quantity: channel for channel in timeline.channels(device)}
    origins = {channel.device.origin for channel in channels.values()}
    if origins != {"measured"}:
        return None
    power = channels.get("power")
    if power is not None and power.kind == "gauge":
        sensor = power.sensor or Sensor(name="")
        window_s = sensor.window_s or 0.0
        # The sensor's lag includes half of its averaging window; the lag of ``Readings`` does not.
        return Readings(
            t_s=followed[:, 0],
            power_w=followed[:, 1],
            window_s=np.full(len(followed), window_s) if window_s else None,
            lag_s=max(sensor.lag_s - window_s / 2.0, 0.0),
            response_s=sensor.response_s,
        )
    intervals = timeline.intervals(device, float(spans.edges_s[0]), float(spans.edges_s[-1]))
    if intervals is None or len(intervals.t_s) < 2:
        return Readings(t_s=np.zeros(0), power_w=np.zeros(0))
    widths_s = np.diff(intervals.t_s)
    return Readings(
        t_s=intervals.t_s[1:],
        power_w=intervals.energy_j / widths_s,
        window_s=widths_s,
        lag_s=0.0,
        response_s=0.0,
    )


def measured_j(meter: ActiveAttempt, device: str, spans: Spans) -> float | None:
    """Return the energy of a device during all phases in joules; ``None`` if unknown."""
    is_inside = np.concatenate(([False], spans.labels >= 0, [False]))
    edges_s = spans.edges_s[np.flatnonzero(np.diff(is_inside))].reshape(-1, 2)
    energies_j = [
        meter.energy(float(start_s), float(end_s), device).energy_j
        for start_s, end_s in edges_s
        if end_s > start_s
    ]
    known_j = [energy_j for energy_j in energies_j if energy_j is not None]
    return sum(known_j) or None if len(known_j) == len(energies_j) else None
