"""All readings of a run: series and energy curves, queried by time window."""

import math
import threading
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from energy_callbacks.core.records import Channel, Device, Energy, Quantity, Reading
from energy_callbacks.sensing.estimation.cumulative_energy import Intervals
from energy_callbacks.sensing.estimation.energy_curve import EnergyCurve
from energy_callbacks.sensing.estimation.series import TimeSeries

# How far the energy of one device reaches; ``None`` before it has spoken.
_EndOf = Callable[[EnergyCurve], float | None]

# A device without readings for longer is silent; every source reads every 1.6 s or more often.
_PAUSE_S: Final = 2.0
# Ten minutes of the quickest sensor, 10 ms apart.
_MOST_FOLLOWED: Final = 60_000


@dataclass(slots=True)
class _Heard:
    """When each quantity of a device was last read, by the clock and by its own time."""

    newest_s: float = -math.inf
    spoken_s: float = 0.0
    last: dict[Quantity, tuple[float, float]] = field(default_factory=dict)

    def note(self, readings: Iterable[Reading]) -> None:
        """Quantities were read."""
        for reading in readings:
            t_s = reading.t_s
            if t_s > self.newest_s:
                self.spoken_s += min(t_s - self.newest_s, _PAUSE_S)
                self.newest_s = t_s
            self.last[reading.channel.quantity] = (t_s, self.spoken_s)

    def silent(self, limit_s: float) -> dict[Quantity, float]:
        """When those were last read that have been silent for more than ``limit_s`` of readings."""
        return {
            quantity: t_s
            for quantity, (t_s, spoken_s) in self.last.items()
            if self.spoken_s - spoken_s > limit_s
        }


@dataclass(slots=True)
class _Track:
    """Everything that is known of one device."""

    device: Device
    channels: tuple[Channel, ...]
    curve: EnergyCurve | None
    series: dict[Quantity, TimeSeries] = field(default_factory=dict)
    heard: _Heard = field(default_factory=_Heard)
    power: deque[tuple[float, float]] | None = None
    silent_since_s: float | None = None
    is_lost: bool = False


class Timeline:
    """Series per quantity and one energy curve per device, safe to use from any thread.

    Args:
        keep_s: how long readings stay at full resolution; energy is kept permanently, exact at
            pinned moments and else at one knot a second.
    """

    def __init__(self, keep_s: float = 600.0) -> None:
        self._keep_s = keep_s
        self._lock = threading.RLock()
        self._tracks: dict[str, _Track] = {}
        # For devices that open later: their buffers may reach back before they were opened.
        self._pins: deque[float] = deque(maxlen=1000)
        self._new_pins: deque[float] = deque()
        self._expected = 0
        self._asked_s: float | None = None
        self._reached: dict[_EndOf, float] = {}

    def expect(self, sources: int) -> None:
        """So many more sources are about to open: what they have seen is worth waiting for."""
        with self._lock:
            self._expected += sources

    def arrived(self) -> None:
        """One source that was expected has been read, or cannot be opened."""
        with self._lock:
            self._expected -= 1

    def register(self, channels: Iterable[Channel]) -> None:
        """Make room for the channels of a source that has opened.

        Raises:
            ValueError: if the energy of a device is offered a second time.
        """
        by_device: dict[str, list[Channel]] = {}
        for channel in channels:
            by_device.setdefault(channel.device.key, []).append(channel)
        with self._lock:
            self._place_pins()
            tracks = {key: self._track(key, offered) for key, offered in by_device.items()}
            self._tracks.update(tracks)

    def _track(self, key: str, offered: Sequence[Channel]) -> _Track:
        known = self._tracks.get(key) or _Track(offered[0].device, (), None)
        curve = known.curve
        if any(channel.quantity in ("power", "energy") for channel in offered):
            if curve is not None:
                raise ValueError(
                    f"the energy of {key!r} is measured already, got a second source for it; "
                    "leave one of them out"
                )
            curve = EnergyCurve(offered, self._keep_s)
            for pin_s in self._pins:
                curve.pin(pin_s)
        channels = (*known.channels, *offered)
        return replace(known, channels=channels, curve=curve, silent_since_s=None, is_lost=False)

    def extend(self, readings: Sequence[Reading]) -> None:
        """Take in readings, in time order for each channel; one that is no number is left out."""
        by_device: dict[str, list[Reading]] = {}
        for reading in readings:
            if math.isfinite(reading.value) and math.isfinite(reading.t_s):
                by_device.setdefault(reading.channel.device.key, []).append(reading)
        with self._lock:
            self._place_pins()
            for key, new in by_device.items():
                self._extend_track(self._tracks[key], new)

    def _extend_track(self, track: _Track, readings: Sequence[Reading]) -> None:
        if track.curve is not None:
            track.curve.add(readings)
        track.heard.note(readings)
        for reading in readings:
            quantity = reading.channel.quantity
            if quantity == "power" and track.power is not None:
                track.power.append((reading.t_s, reading.value))
            if quantity in ("power", "energy"):
                continue  # the curve has them
            series = track.series.get(quantity)
            if series is None:
                series = track.series[quantity] = TimeSeries(self._keep_s)
            series.append(reading.t_s, reading.value)

    def follow_power(self, key: str) -> None:
        """From now on keep what a device's power sensor says, as it says it: not set right."""
        with self._lock:
            self._tracks[key].power = deque(maxlen=_MOST_FOLLOWED)

    def leave_power(self, key: str) -> list[tuple[float, float]]:
        """Readings of power since ``follow_power``, (t_s, W); none are kept any more."""
        with self._lock:
            track = self._tracks[key]
            followed, track.power = track.power, None
            return list(followed or ())

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
            ValueError: if ``end_s`` does not lie after ``start_s``.
        """
        if not end_s > start_s:
            raise ValueError(
                f"a window must end after it starts, got start_s={start_s!r}, end_s={end_s!r}"
            )
        with self._lock:
            curve = self._tracks[key].curve
            return curve.energy(start_s, end_s) if curve else Energy(energy_j=None)

    def seen(self, key: str, start_s: float, end_s: float) -> tuple[float | None, float]:
        """Joules and coverage of ``energy``, without what is known of their quality."""
        with self._lock:
            curve = self._tracks[key].curve
            return curve.seen(start_s, end_s) if curve else (None, 0.0)

    def intervals(
        self, key: str, start_s: float, end_s: float, *, provisional: bool = False
    ) -> Intervals | None:
        """Energy of one device from reading to reading; see ``EnergyCurve.intervals``."""
        with self._lock:
            curve = self._tracks[key].curve
            return curve.intervals(start_s, end_s, provisional=provisional) if curve else None

    def pin(self, t_s: float) -> None:
        """Keep all energy curves exact at this moment, permanently.

        Takes no lock: the training thread calls this at every change of phase. The curves get the
        moment before the next readings.
        """
        self._new_pins.append(t_s)

    def _place_pins(self) -> None:
        while self._new_pins:
            t_s = self._new_pins.popleft()
            self._pins.append(t_s)
            for track in self._tracks.values():
                if track.curve is not None:
                    track.curve.pin(t_s)

    def settled_s(self, now_s: float, patience_s: float = 6.0) -> float | None:
        """The moment up to which every device's energy is final.

        Until all sources that are expected and all devices have shown something, it stands
        still; a device that has shown nothing for ``patience_s`` is not waited for: it has a gap.

        Returns:
            The moment, which never goes back while it is known; ``None`` before the first and
            if no device has shown anything for ``patience_s``.
        """
        return self._reached_s(_final_until, now_s, patience_s)

    def seen_s(self, now_s: float, patience_s: float = 6.0) -> float | None:
        """The same of the moment up to which every device was seen.

        What an energy counter has not confirmed yet may still change a little: on an H200 that is
        the energy of the last four seconds, by two thousandths.
        """
        return self._reached_s(_seen_until, now_s, patience_s)

    def _reached_s(self, end_of: _EndOf, now_s: float, patience_s: float) -> float | None:
        """How far the slowest device has come that is still waited for."""
        with self._lock:
            before_s = self._reached.get(end_of)
            if self._is_waiting(now_s, patience_s):
                return before_s
            ends = [end_of(track.curve) for track in self._tracks.values() if track.curve]
            alive = [end for end in ends if end is not None and now_s - end < patience_s]
            if not alive:
                return None
            self._reached[end_of] = max(min(alive), before_s or -math.inf)
            return self._reached[end_of]

    def complete_s(self, now_s: float, patience_s: float = 60.0) -> float | None:
        """The moment up to which the energy of every device that ever spoke is final.

        Unlike ``settled_s`` it waits for a driver that hangs, up to ``patience_s``; it does not
        wait for a device that is lost.
        """
        with self._lock:
            ends = [
                _final_until(track.curve)
                for track in self._tracks.values()
                if track.curve is not None and not track.is_lost
            ]
        known = [end for end in ends if end is not None and now_s - end < patience_s]
        return min(known) if known else self.settled_s(now_s)

    def lose(self, keys: Iterable[str]) -> None:
        """These devices will report nothing any more: they are not waited for."""
        with self._lock:
            for key in keys:
                self._tracks[key].is_lost = True

    def _is_waiting(self, now_s: float, patience_s: float) -> bool:
        """Whether a source or a device is new, and may still report moments that have passed."""
        if self._asked_s is None:
            self._asked_s = now_s
        is_waiting = self._expected > 0 and now_s - self._asked_s < patience_s
        for track in self._tracks.values():
            if track.curve is not None and track.curve.start_s is None:
                if track.silent_since_s is None:
                    track.silent_since_s = now_s
                is_waiting |= now_s - track.silent_since_s < patience_s
        return is_waiting

    def silent(self, limit_s: float) -> dict[tuple[str, Quantity], float]:
        """Quantities that have missed more than ``limit_s`` in which their device spoke.

        Returns:
            For device key and quantity, when it was last read.
        """
        with self._lock:
            return {
                (key, quantity): last_s
                for key, track in self._tracks.items()
                for quantity, last_s in track.heard.silent(limit_s).items()
            }

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

    def values(self, key: str, quantity: Quantity, start_s: float, end_s: float) -> "array[float]":
        """Readings of a gauge or counter with ``start_s < t_s <= end_s``."""
        with self._lock:
            series = self._tracks[key].series.get(quantity)
            return series.between(start_s, end_s) if series else array("d")

    def readings(
        self, key: str, quantity: Quantity, start_s: float, end_s: float
    ) -> "tuple[array[float], array[float]]":
        """Their times and they themselves."""
        with self._lock:
            series = self._tracks[key].series.get(quantity)
            return series.readings(start_s, end_s) if series else (array("d"), array("d"))

    def rate(self, key: str, quantity: Quantity, start_s: float, end_s: float) -> float | None:
        """Rise a second of a counter over about this span; ``None`` if it was not read twice."""
        with self._lock:
            series = self._tracks[key].series.get(quantity)
            return series.rate(start_s, end_s) if series else None

    def gauges(self, key: str, start_s: float, end_s: float) -> "dict[Quantity, array[float]]":
        """The same of all gauges and counters of a device that have any."""
        with self._lock:
            found: dict[Quantity, array[float]] = {}
            for quantity, series in self._tracks[key].series.items():
                values = series.between(start_s, end_s)
                if values:
                    found[quantity] = values
            return found

    def keys_with(self, quantity: Quantity) -> tuple[str, ...]:
        """Devices of which a gauge or counter was ever read."""
        with self._lock:
            return tuple(key for key, track in self._tracks.items() if quantity in track.series)

    def latest(self, key: str, quantity: Quantity, after_s: float) -> float | None:
        """The newest reading of a gauge or counter, unless it is from before ``after_s``."""
        with self._lock:
            series = self._tracks[key].series.get(quantity)
            return series.latest(after_s) if series else None

    def impossible(self) -> dict[str, int]:
        """How many power readings of a device none can draw, if there were any."""
        with self._lock:
            return {
                key: track.curve.impossible
                for key, track in self._tracks.items()
                if track.curve is not None and track.curve.impossible
            }

    def disagreements(self) -> dict[str, int]:
        """How often counter and readings disagreed, by device; devices without are left out."""
        with self._lock:
            return {
                key: track.curve.disagreements
                for key, track in self._tracks.items()
                if track.curve is not None and track.curve.disagreements
            }


def _final_until(curve: EnergyCurve) -> float | None:
    """If nothing is settled yet, all before the first moment that was seen is final."""
    settled_s = curve.settled_s
    return curve.start_s if settled_s is None else settled_s


def _seen_until(curve: EnergyCurve) -> float | None:
    return curve.newest_s
