"""Readings of the power sensor of the training device, as input of the split."""

import sys

import numpy as np

from energy_callbacks.accounting.attempt import ActiveAttempt
from energy_callbacks.core.records import Device, Sensor
from energy_callbacks.profiling.phases.exposure import Spans
from energy_callbacks.profiling.phases.fit import Readings


def device_of(meter: ActiveAttempt) -> str | None:
    """Key of the device that this process trains on: its GPU, else the processor.

    ``None`` if no such device has a sensor, or if it is one of several and none knows which.
    """
    metered = set(meter.timeline.metered)
    devices = [device for device in meter.devices if device.key in metered]
    gpus = [device for device in devices if device.kind == "gpu"]
    uuid = _current_gpu()
    if uuid is not None:
        return next((device.key for device in gpus if _is(device, uuid)), None)
    hosts = [device.key for device in devices if device.kind in ("cpu", "process")]
    if hosts and (not gpus or _trains_on_cpu()):
        return hosts[0] if len(hosts) == 1 else None
    return gpus[0].key if len(gpus) == 1 else None


def _current_gpu() -> str | None:
    """UUID of the card that PyTorch uses now; ``None`` without PyTorch, or if it uses none."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    found = torch.cuda.get_device_properties(torch.cuda.current_device())
    return str(getattr(found, "uuid", "")) or None


def _trains_on_cpu() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and not torch.cuda.is_available()


def _is(device: Device, uuid: str) -> bool:
    return any(known.endswith(uuid) for known in (device.uuid or "", *device.instances))


def readings(meter: ActiveAttempt, device: str, spans: Spans) -> Readings | None:
    """Readings of a device during phases; ``None`` if they come from a model."""
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
        # A mean is centred half its window before it is reported; here the window is explicit.
        return Readings(
            t_s=followed[:, 0],
            power_w=followed[:, 1],
            window_s=np.full(len(followed), window_s) if window_s else None,
            lag_s=max(sensor.lag_s - window_s / 2.0, 0.0),
            response_s=sensor.response_s,
        )
    found = timeline.intervals(device, float(spans.edges_s[0]), float(spans.edges_s[-1]))
    widths_s = np.diff(found.t_s) if found is not None else np.zeros(0)
    if found is None or not len(widths_s):
        return Readings(t_s=np.zeros(0), power_w=np.zeros(0))
    return Readings(
        t_s=found.t_s[1:],
        power_w=found.energy_j / widths_s,
        window_s=widths_s,
        lag_s=0.0,
        response_s=0.0,
    )


def measured(meter: ActiveAttempt, device: str, spans: Spans) -> float | None:
    """Energy of a device while phases of the step went on, J, as the meter knows it."""
    is_inside = spans.labels >= 0
    turns = np.flatnonzero(np.diff(np.concatenate(([False], is_inside, [False]))))
    total_j = 0.0
    for first, last in turns.reshape(-1, 2):
        start_s, end_s = float(spans.edges_s[first]), float(spans.edges_s[last])
        if end_s <= start_s:
            continue
        energy_j = meter.energy(start_s, end_s, device).energy_j
        if energy_j is None:
            return None
        total_j += energy_j
    return total_j or None
