"""Stores the readings of an attempt, and returns values and energy of time spans."""

import math
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from energy_callbacks.core.records import Channel, Device, Energy, Quantity, Reading
from energy_callbacks.core.yielding import YieldingLock
from energy_callbacks.sensing.estimation.cumulative_energy import Intervals
from energy_callbacks.sensing.estimation.energy_curve import EnergyCurve
from energy_callbacks.sensing.estimation.exposure import Shape
from energy_callbacks.sensing.estimation.series import TimeSeries
from energy_callbacks.sensing.scopes import SCOPES, Part, in_sum
from energy_callbacks.sensing.track import Track

# A function that returns the end of a curve, or of its settled part; ``None`` for an empty curve.
_EndOf = Callable[[EnergyCurve], float | None]

# Maximum number of raw power readings kept: ten minutes of readings every 10 ms.
_MOST_FOLLOWED: Final = 60_000


class Timeline:
    """Stores the energy curve and the other quantities of each device; safe to use from any thread.

    Attributes:
        newest_pin_s: the moment passed to the last call of ``pin``, usually the last change of
            phase; minus infinity before the first call.

    Args:
        keep_s: how long readings and energy are kept at full resolution, s. Older readings are
            dropped. Older energy stays exact at pinned moments (see ``pin``); in addition, one knot
            per second is kept.
    """

    def __init__(self, keep_s: float = 600.0) -> None:
        self._keep_s = keep_s
        self._lock = YieldingLock()
        self._tracks: dict[str, Track] = {}
        self._keys: dict[str, tuple[str, ...]] = {}  # results of ``keys``, until a source opens
        # Pinned moments, kept for sources that open later, because a source may return readings
        # from before it was opened.
        self._pins: deque[float] = deque(maxlen=1000)
        self._new_pins: deque[float] = deque()
        self.newest_pin_s = -math.inf
        self._period_s: float | None = None
        self._expected = 0
        self._asked_s: float | None = None
        self._reached: dict[_EndOf, float] = {}

    def expect(self, sources: int) -> None:
        """Announce a number of sources that will open, so that ``settled_s`` waits for them."""
        with self._lock:
            self._expected += sources

    def arrived(self) -> None:
        """Record that one expected source has opened, or that it cannot be opened."""
        with self._lock:
            self._expected -= 1

    def register(self, channels: Iterable[Channel], used_since_s: float = -math.inf) -> None:
        """Add the channels of a source that has opened.

        Args:
            channels: the channels.
            used_since_s: time from which the run uses the devices of this source that are new. If
                energies of later moments were final already, they stay as they are.

        Raises:
            ValueError: if the energy of a device would have two sources.
        """
        by_device: dict[str, list[Channel]] = {}
        for channel in channels:
            by_device.setdefault(channel.device.key, []).append(channel)
        with self._lock:
            self._place_pins()
            settled_s = self._reached.get(_final_until, -math.inf)
            since_s = max(used_since_s, settled_s) if used_since_s > -math.inf else used_since_s
            tracks = {key: self._track(key, offered, since_s) for key, offered in by_device.items()}
            self._tracks.update(tracks)
            self._keys = {}

    def _track(self, key: str, offered: Sequence[Channel], used_since_s: float) -> Track:
        new = Track(offered[0].device, (), EnergyCurve(()), used_since_s=used_since_s)
        track = self._tracks.get(key, new)
        channels = (*track.channels, *offered)
        track = replace(track, channels=channels, silent_since_s=None, is_lost=False)
        if any(channel.quantity in ("power", "energy") for channel in offered):
            if track.is_metered:
                raise ValueError(
                    f"the energy of {key!r} is measured already, got a second source for it; "
                    "leave one of them out"
                )
            track.curve, track.is_metered = EnergyCurve(offered, self._keep_s), True
            for pin_s in self._pins:
                track.curve.pin(pin_s)
            if self._period_s is not None:
                track.curve.note_period(self._period_s)
        return track

    def extend(self, readings: Sequence[Reading]) -> None:
        """Add readings; drop those that are not finite.

        The readings of each channel must be in time order.
        """
        by_device: dict[str, list[Reading]] = {}
        for reading in readings:
            if math.isfinite(reading.value) and math.isfinite(reading.t_s):
                by_device.setdefault(reading.channel.device.key, []).append(reading)
        with self._lock:
            self._place_pins()
            for key, new in by_device.items():
                track = self._tracks[key]
                if track.is_silent_machine:
                    self._keys = {}
                track.extend(new, self._keep_s)

    def recent_power(self, key: str) -> "tuple[array[float], array[float]]":
        """Return times and values of a device's newest power readings, s and W."""
        with self._lock:
            return self._tracks[key].recent.readings(-math.inf, math.inf)

    def follow_power(self, key: str) -> None:
        """Start to keep a device's raw power readings, without corrections."""
        with self._lock:
            self._tracks[key].power = deque(maxlen=_MOST_FOLLOWED)

    def leave_power(self, key: str) -> list[tuple[float, float]]:
        """Stop keeping raw power readings, and return those since ``follow_power``: (t_s, W)."""
        with self._lock:
            track = self._tracks[key]
            followed, track.power = track.power, None
            return list(followed or ())

    def finish(self) -> None:
        """Settle every curve, because no more readings will come."""
        with self._lock:
            for track in self._tracks.values():
                track.curve.finish()

    @property
    def devices(self) -> tuple[Device, ...]:
        """All devices, in the order in which their sources opened."""
        with self._lock:
            return tuple(track.device for track in self._tracks.values())

    @property
    def metered(self) -> tuple[str, ...]:
        """Keys of all devices with a channel of power or energy."""
        with self._lock:
            return tuple(key for key, track in self._tracks.items() if track.is_metered)

    def channels(self, key: str) -> tuple[Channel, ...]:
        """Return the channels of one device."""
        with self._lock:
            return self._tracks[key].channels

    def keys(self, scope: str) -> tuple[str, ...]:
        """Return the keys of the devices whose energy makes up a scope.

        ``scopes`` has the rules. A sensor of the whole machine is left out until it has readings.

        Args:
            scope: ``gpu``, ``host``, ``machine``, ``total`` or the key of one device.

        Raises:
            ValueError: for an unknown scope.
        """
        known = self._keys
        if scope not in known:
            known[scope] = self._keys_of(scope)
        return known[scope]

    def _keys_of(self, scope: str) -> tuple[str, ...]:
        with self._lock:
            metered = {key: track for key, track in self._tracks.items() if track.is_metered}
            parts = {
                key: Part(track.device.scope, track.device.parent)
                for key, track in metered.items()
                if not track.is_silent_machine
            }
        if scope in metered:
            return (scope,)
        if scope not in SCOPES:
            raise ValueError(
                f"unknown scope {scope!r}; use {str(SCOPES)[1:-1]} or one of {sorted(metered)}"
            )
        return in_sum(scope, parts)

    def energy(self, key: str, start_s: float, end_s: float) -> Energy:
        """Return the energy of one device between two moments.

        In the time before the run used the device, the energy is 0 and is covered by readings.

        Raises:
            ValueError: if ``end_s`` is not after ``start_s``.
        """
        if not end_s > start_s:
            raise ValueError(
                f"a window must end after it starts, got start_s={start_s!r}, end_s={end_s!r}"
            )
        with self._lock:
            return self._tracks[key].energy(start_s, end_s)

    def seen(self, key: str, start_s: float, end_s: float) -> tuple[float | None, float]:
        """Return the joules and the coverage as ``energy`` does, without computing errors."""
        with self._lock:
            return self._tracks[key].seen(start_s, end_s)

    def used_since_s(self, key: str) -> float:
        """Return the time from which the run uses a device; minus infinity for its whole time."""
        with self._lock:
            return self._tracks[key].used_since_s

    def intervals(
        self, key: str, start_s: float, end_s: float, *, provisional: bool = False
    ) -> Intervals | None:
        """Return the intervals of one device's energy curve; see ``EnergyCurve.intervals``."""
        with self._lock:
            return self._tracks[key].curve.intervals(start_s, end_s, provisional=provisional)

    def shape(self, key: str) -> Shape:
        """Return ``EnergyCurve.shape`` of one device."""
        with self._lock:
            return self._tracks[key].curve.shape

    def pin(self, t_s: float) -> None:
        """Keep all energy curves permanently exact at this moment.

        Takes no lock, because the training thread calls it at every change of phase. The curves
        receive the moment before they receive their next readings.
        """
        self._new_pins.append(t_s)
        self.newest_pin_s = t_s

    def note_period(self, period_s: float) -> None:
        """Record the mean period of the training's steps from now on, s.

        If the period beats with a sensor, the errors of energies include the error of the beat.
        """
        with self._lock:
            self._period_s = period_s
            for track in self._tracks.values():
                track.curve.note_period(period_s)

    def _place_pins(self) -> None:
        while self._new_pins:
            t_s = self._new_pins.popleft()
            self._pins.append(t_s)
            for track in self._tracks.values():
                track.curve.pin(t_s)

    def settled_s(self, now_s: float, patience_s: float = 6.0) -> float | None:
        """Return the moment up to which the energy of every device is final.

        The result does not advance while an expected source may still open or a device has no
        readings yet. A source or device that would delay the result by more than ``patience_s``
        seconds is ignored.

        Returns:
            The moment, which never decreases. ``None`` if it is not known yet, or if all devices
            are ignored.
        """
        return self._reached_s(_final_until, now_s, patience_s)

    def seen_s(self, now_s: float, patience_s: float = 6.0) -> float | None:
        """Return the moment up to which every device has readings; see ``settled_s``.

        The energy up to this moment may change a little until a counter confirms it: on an H200
        the energy of the last four seconds may change by 0.2 %.
        """
        return self._reached_s(_seen_until, now_s, patience_s)

    def _reached_s(self, end_of: _EndOf, now_s: float, patience_s: float) -> float | None:
        """Return the earliest of the curves' ends that are less than ``patience_s`` ago."""
        self._process_all()
        with self._lock:
            before_s = self._reached.get(end_of)
            if self._is_waiting(now_s, patience_s):
                return before_s
            ends = [end_of(track.curve) for track in self._tracks.values()]
            alive = [end for end in ends if end is not None and now_s - end < patience_s]
            if not alive:
                return None
            self._reached[end_of] = max(min(alive), before_s or -math.inf)
            return self._reached[end_of]

    def _process_all(self) -> None:
        """Process the new readings of each device, and let other threads run in between.

        Then none of the next queries takes long.
        """
        with self._lock:
            tracks = tuple(self._tracks.values())
        for track in tracks:
            with self._lock:
                track.curve.process_anchors()
            with self._lock:
                track.curve.process()

    def complete_s(self, now_s: float, patience_s: float = 60.0) -> float | None:
        """Return the moment up to which the energy of every device with readings is final.

        A device whose driver hangs delays the result by at most ``patience_s`` seconds. A lost
        device does not delay the result.
        """
        with self._lock:
            ends = [_final_until(t.curve) for t in self._tracks.values() if not t.is_lost]
        known = [end for end in ends if end is not None and now_s - end < patience_s]
        return min(known) if known else self.settled_s(now_s)

    def mark(self, keys: Iterable[str], *, is_lost: bool) -> None:
        """Mark devices as lost, or as not lost any more; lost devices will have no readings."""
        with self._lock:
            for key in keys:
                self._tracks[key].is_lost = is_lost

    def _is_waiting(self, now_s: float, patience_s: float) -> bool:
        """Return whether a new source or device may still add readings of past moments."""
        if self._asked_s is None:
            self._asked_s = now_s
        is_waiting = self._expected > 0 and now_s - self._asked_s < patience_s
        for track in self._tracks.values():
            if track.is_metered and track.curve.start_s is None:
                if track.silent_since_s is None:
                    track.silent_since_s = now_s
                is_waiting |= now_s - track.silent_since_s < patience_s
        return is_waiting

    def silent(self, limit_s: float) -> dict[tuple[str, Quantity], float]:
        """Return quantities without readings for ``limit_s`` while their device had other readings.

        Returns:
            Time of the last reading by device key and quantity.
        """
        with self._lock:
            return {
                (key, quantity): last_s
                for key, track in self._tracks.items()
                for quantity, (last_s, read_s) in track.last.items()
                if track.read_s - read_s > limit_s
            }

    def newest_s(self, key: str) -> float | None:
        """Return the end of a device's energy curve; ``None`` if it is empty."""
        with self._lock:
            return self._tracks[key].curve.newest_s

    def start_s(self, key: str) -> float | None:
        """Return the start of a device's energy curve; ``None`` if it is empty."""
        with self._lock:
            return self._tracks[key].curve.start_s

    def readings(
        self, key: str, quantity: Quantity, start_s: float, end_s: float
    ) -> "tuple[array[float], array[float]]":
        """Return times and values of a gauge or counter with ``start_s < t_s <= end_s``."""
        with self._lock:
            return self._series(key, quantity).readings(start_s, end_s)

    def rate(self, key: str, quantity: Quantity, start_s: float, end_s: float) -> float | None:
        """Return the increase of a counter per second; see ``TimeSeries.rate``."""
        with self._lock:
            return self._series(key, quantity).rate(start_s, end_s)

    def latest(self, key: str, quantity: Quantity, after_s: float) -> float | None:
        """Return the newest value of a gauge or counter; ``None`` if none is after ``after_s``."""
        with self._lock:
            return self._series(key, quantity).latest(after_s)

    def _series(self, key: str, quantity: Quantity) -> TimeSeries:
        return self._tracks[key].series.get(quantity) or TimeSeries(0.0)

    def gauges(self, key: str, start_s: float, end_s: float) -> "dict[Quantity, array[float]]":
        """Return the ``values`` of a device's gauges and counters, without empty ones."""
        with self._lock:
            series = self._tracks[key].series.items()
            values: dict[Quantity, array[float]] = {
                quantity: one.readings(start_s, end_s)[1] for quantity, one in series
            }
        return {quantity: found for quantity, found in values.items() if found}

    def keys_with(self, quantity: Quantity) -> tuple[str, ...]:
        """Return the keys of devices with at least one reading of this gauge or counter."""
        with self._lock:
            return tuple(key for key, track in self._tracks.items() if quantity in track.series)

    def impossible(self) -> dict[str, int]:
        """Return ``EnergyCurve.impossible`` by device key, without zeros."""
        with self._lock:
            counts = {key: track.curve.impossible for key, track in self._tracks.items()}
        return {key: count for key, count in counts.items() if count}

    def disagreements(self) -> dict[str, int]:
        """Return ``EnergyCurve.disagreements`` by device key, without zeros."""
        with self._lock:
            counts = {key: track.curve.disagreements for key, track in self._tracks.items()}
        return {key: count for key, count in counts.items() if count}


def _final_until(curve: EnergyCurve) -> float | None:
    """Return the moment up to which a curve is final; its start if nothing is settled yet."""
    settled_s = curve.settled_s
    return curve.start_s if settled_s is None else settled_s


def _seen_until(curve: EnergyCurve) -> float | None:
    return curve.newest_s
