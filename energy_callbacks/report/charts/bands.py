"""Computes at most ``MAX_BANDS`` power curves on a common time axis, for stacked charts."""

import itertools
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from energy_callbacks.core.records import Scope
from energy_callbacks.report.model.curves import Series
from energy_callbacks.report.model.runs import DeviceUse
from energy_callbacks.report.model.schema import EnergyReport

# More bands cannot be distinguished. If there are more devices, they are summed by host and scope,
# or by scope alone.
MAX_BANDS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """Total power of one or more devices, as the mean of each bin of time.

    Attributes:
        name: label of the band.
        scope: scope of the devices.
        is_estimated: whether a model estimates the energy of at least one of the devices.
        edges_s: edges of the bins, (n + 1,); the same for all bands of a report.
        power_w: mean power in each bin, (n,); the area below the curve is the energy.
    """

    name: str
    scope: Scope
    is_estimated: bool
    edges_s: tuple[float, ...]
    power_w: tuple[float, ...]


def bands(report: EnergyReport, max_bins: int) -> list[Band]:
    """Return the power of the devices that count towards totals, in at most ``max_bins`` bins."""
    curves = {
        (curve.host, curve.key): curve
        for curve in report.series
        if any(power_w is not None for power_w in curve.power_w)
    }
    devices = [
        device
        for device in report.devices
        if device.scope is not None
        and device.counted_in is None
        and (device.host, device.key) in curves
    ]
    if not devices:
        return []
    # The bins cover the run from start to end. Their number is at most the number of points in the
    # most detailed curve.
    shown = [curves[device.host, device.key] for device in devices]
    bins = min(max(len(curve.t_s) for curve in shown), max_bins)
    edges_s = np.linspace(0.0, max(curve.t_s[-1] for curve in shown), bins + 1)
    return [_band(name, group, curves, edges_s) for name, group in _grouped(devices).items()]


def _grouped(devices: Sequence[DeviceUse]) -> Mapping[str, list[DeviceUse]]:
    """Return the devices of each group: one group per device, or per host and scope, or per scope.

    The first of these three groupings that has at most ``MAX_BANDS`` groups is used.
    """
    has_hosts = len({device.host for device in devices}) > 1
    names: tuple[Callable[[DeviceUse], str], ...] = (
        lambda device: f"{device.key} {f'· {device.host}' if has_hosts else device.name}",
        lambda device: f"{device.scope} · {device.host}",
        lambda device: f"{device.scope}",
    )
    groups: dict[str, list[DeviceUse]] = {}
    for name in names:
        groups = defaultdict(list)
        for device in devices:
            groups[name(device)].append(device)
        if len(groups) <= MAX_BANDS:
            break
    return groups


def _band(
    name: str,
    devices: Sequence[DeviceUse],
    curves: Mapping[tuple[str, str], Series],
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
    """Return a curve's cumulative energy in joules at the edges, linearly interpolated."""
    in_bins = [
        (power_w or 0.0) * known_s
        for power_w, known_s in zip(curve.power_w, curve.seen_s, strict=True)
    ]
    start_s = max(curve.t_s[0] - curve.seen_s[0], 0.0)
    return np.interp(edges_s, [start_s, *curve.t_s], [0.0, *itertools.accumulate(in_bins)])
