"""All series of a run in one place: readings go in, windows are asked of it."""

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from energy_callbacks.records import Channel, Device, Energy, Quantity, Reading
from energy_callbacks.sensing.energy import EnergyCurve
from energy_callbacks.sensing.series import Array, Series


@dataclass(slots=True)
class _Track:
    """Everything that is known of one device."""

    device: Device
    channels: tuple[Channel, ...]
    curve: EnergyCurve | None
    series: dict[Quantity, Series] = field(default_factory=dict)


class Timeline:
    """Series per quantity and one energy curve per device, safe to use from any thread.

    Args:
        keep_s: how long readings stay at full resolution; energy is kept for ever, exact at
            pinned moments and else at one knot a second.
    """

    def __init__(self, keep_s: float = 600.0) -> None:
        self._keep_s = keep_s
        self._lock = threading.RLock()
        self._tracks: dict[str, _Track] = {}

    def register(self, channels: Iterable[Channel]) -> None:
        """Make room for the channels of a source that has opened."""
        by_device: dict[str, list[Channel]] = {}
        for channel in channels:
            by_device.setdefault(channel.device.key, []).append(channel)
        with self._lock:
            for key, offered in by_device.items():
                has_energy = any(channel.quantity in ("power", "energy") for channel in offered)
                curve = EnergyCurve(offered, self._keep_s) if has_energy else None
                self._tracks[key] = _Track(offered[0].device, tuple(offered), curve)

    def extend(self, readings: Sequence[Reading]) -> None:
        """Take in readings, in time order for each channel."""
        by_device: dict[str, list[Reading]] = {}
        with self._lock:
            for reading in readings:
                by_device.setdefault(reading.channel.device.key, []).append(reading)
            for key, new in by_device.items():
                self._extend_track(self._tracks[key], new)

    def _extend_track(self, track: _Track, readings: Sequence[Reading]) -> None:
        if track.curve is not None:
            track.curve.add(readings)
        for reading in readings:
            quantity = reading.channel.quantity
            if quantity == "energy":
                continue
            series = track.series.get(quantity)
            if series is None:
                series = track.series[quantity] = Series(self._keep_s)
            series.append(reading.t_s, reading.value)

    def finish(self) -> None:
        """No more readings will come: settle every curve."""
        with self._lock:
            for track in self._tracks.values():
                if track.curve is not None:
                    track.curve.finish()

    @property
    def devices(self) -> tuple[Device, ...]:
        """All devices, in the order in which their sources opened."""
        with self._lock:
            return tuple(track.device for track in self._tracks.values())

    @property
    def metered(self) -> tuple[str, ...]:
        """Keys of all devices that have energy, in any scope."""
        with self._lock:
            return tuple(key for key, track in self._tracks.items() if track.curve is not None)

    def channels(self, key: str) -> tuple[Channel, ...]:
        """What is measured of one device."""
        with self._lock:
            return self._tracks[key].channels

    def keys(self, scope: str) -> tuple[str, ...]:
        """Devices whose energy makes up a scope: ``gpu``, ``host``, ``total`` or one device.

        A device whose parent is measured too is part of it and left out.

        Raises:
            ValueError: for a scope that is neither of these words nor a device.
        """
        with self._lock:
            metered = {key: t.device for key, t in self._tracks.items() if t.curve is not None}
        if scope in metered:
            return (scope,)
        if scope not in ("gpu", "host", "total"):
            raise ValueError(
                f"unknown scope {scope!r}; use 'gpu', 'host', 'total' or one of {sorted(metered)}"
            )
        return tuple(
            key
            for key, device in metered.items()
            if device.scope is not None
            and scope in (device.scope, "total")
            and device.parent not in metered
        )

    def energy(self, key: str, start_s: float, end_s: float) -> Energy:
        """Energy of one device between two moments.

        Raises:
            ValueError: where ``end_s`` does not lie after ``start_s``.
        """
        if not end_s > start_s:
            raise ValueError(
                f"a window must end after it starts, got start_s={start_s!r}, end_s={end_s!r}"
            )
        with self._lock:
            curve = self._tracks[key].curve
            return curve.energy(start_s, end_s) if curve else Energy(energy_j=None)

    def pin(self, t_s: float) -> None:
        """Keep all energy curves exact at this moment, for ever."""
        with self._lock:
            for track in self._tracks.values():
                if track.curve is not None:
                    track.curve.pin(t_s)

    def settled_s(self, now_s: float, patience_s: float = 6.0) -> float | None:
        """The moment up to which every device's energy is final.

        A device that has shown nothing for ``patience_s`` is not waited for: it has a gap.
        ``None`` before all devices have shown something.
        """
        with self._lock:
            curves = [track.curve for track in self._tracks.values() if track.curve is not None]
            ends = [curve.settled_s for curve in curves]
        alive = [end for end in ends if end is not None and now_s - end < patience_s]
        return min(alive) if alive else None

    def newest_s(self, key: str) -> float | None:
        """The newest moment that was seen of a device's energy."""
        with self._lock:
            curve = self._tracks[key].curve
            return curve.newest_s if curve else None

    def start_s(self, key: str) -> float | None:
        """The first moment that was seen of a device's energy."""
        with self._lock:
            curve = self._tracks[key].curve
            return curve.start_s if curve else None

    def values(self, key: str, quantity: Quantity, start_s: float, end_s: float) -> Array:
        """Readings of a gauge or counter with ``start_s < t_s <= end_s``, (m,)."""
        with self._lock:
            series = self._tracks[key].series.get(quantity)
            return series.between(start_s, end_s).copy() if series else np.empty(0)

    def latest(self, key: str, quantity: Quantity) -> float | None:
        """The newest reading of a gauge or counter."""
        with self._lock:
            series = self._tracks[key].series.get(quantity)
            return series.latest() if series else None

    def disagreements(self) -> dict[str, int]:
        """How often counter and readings of a device told different stories, where ever."""
        with self._lock:
            return {
                key: track.curve.disagreements
                for key, track in self._tracks.items()
                if track.curve is not None and track.curve.disagreements
            }
