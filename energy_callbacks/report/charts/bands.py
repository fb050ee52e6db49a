"""Curves of power on one time axis, so that they can be stacked: few enough to distinguish."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from energy_callbacks.core.records import Scope
from energy_callbacks.report.model.models import DeviceUse, Series
from energy_callbacks.report.model.schema import EnergyReport

# More bands than this cannot be distinguished; devices are then summed by host, hosts by scope.
MAX_BANDS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """Mean power of one device or of several, between common edges.

    Attributes:
        edges_s: one more than there are values; the same for all bands of a report.
        power_w: energy of the bin over its whole length, so that the area is the energy.
    """

    name: str
    scope: Scope
    is_estimated: bool
    edges_s: tuple[float, ...]
    power_w: tuple[float, ...]


def bands(report: EnergyReport, max_bins: int) -> list[Band]:
    """The curves of all counted devices, GPUs first, in at most ``max_bins`` bins."""
    curves = {(curve.host, curve.key): curve for curve in report.series}
    devices = [
        device
        for device in report.devices
        if device.scope is not None
        and device.counted_in is None
        and any(power is not None for power in _power(curves.get((device.host, device.key))))
    ]
    if not devices:
        return []
    edges_s = _edges_s([curves[device.host, device.key] for device in devices], max_bins)
    groups = _grouped(devices)
    return [_band(name, group, curves, edges_s) for name, group in groups.items()]


def _power(curve: Series | None) -> Iterable[float | None]:
    return () if curve is None else curve.power_w


def _edges_s(curves: Sequence[Series], max_bins: int) -> NDArray[np.float64]:
    """From the start of the run to its end, not finer than the curves are."""
    end_s = max(curve.t_s[-1] for curve in curves)
    finest = max(len(curve.t_s) for curve in curves)
    return np.linspace(0.0, end_s, min(finest, max_bins) + 1)


def _grouped(devices: Sequence[DeviceUse]) -> dict[str, list[DeviceUse]]:
    """Devices one by one, else by host and scope, else by scope."""
    hosts = {device.host for device in devices}
    by_device = {f"{d.key} · {d.host}" if len(hosts) > 1 else _with_name(d): [d] for d in devices}
    if len(by_device) <= MAX_BANDS:
        return by_device
    by_host = _collected(devices, lambda device: f"{device.scope} · {device.host}")
    return by_host if len(by_host) <= MAX_BANDS else _collected(devices, lambda d: str(d.scope))


def _with_name(device: DeviceUse) -> str:
    return f"{device.key} {device.name}"


def _collected(
    devices: Iterable[DeviceUse], name: Callable[[DeviceUse], str]
) -> dict[str, list[DeviceUse]]:
    found: dict[str, list[DeviceUse]] = {}
    for device in devices:
        found.setdefault(name(device), []).append(device)
    return found


def _band(
    name: str,
    devices: Sequence[DeviceUse],
    curves: dict[tuple[str, str], Series],
    edges_s: NDArray[np.float64],
) -> Band:
    energy_j = sum(_energy_at(curves[device.host, device.key], edges_s) for device in devices)
    power_w = np.diff(energy_j) / np.diff(edges_s)
    scope = devices[0].scope
    assert scope is not None, "only devices with energy have bands"
    return Band(
        name=name,
        scope=scope,
        is_estimated=any(device.origin == "estimated" for device in devices),
        edges_s=tuple(edges_s.tolist()),
        power_w=tuple(power_w.tolist()),
    )


def _energy_at(curve: Series, edges_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """Cumulative energy of a curve at the edges: straight between the ends of its bins."""
    in_bins = [
        (power_w or 0.0) * seen_s
        for power_w, seen_s in zip(curve.power_w, curve.seen_s, strict=True)
    ]
    start_s = max(curve.t_s[0] - curve.seen_s[0], 0.0)
    return np.interp(edges_s, [start_s, *curve.t_s], [0.0, *itertools.accumulate(in_bins)])
