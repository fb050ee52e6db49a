"""Energy between two moments, from a device's power and energy readings.

The energy counter anchors the total, power readings give the shape::

    shape    S(t) = integral of (s + tau ds/dt)     s: readings, moved back by the sensor's lag;
                                                    tau: its response time
    anchor   C rises by what the counter rose by    from one reading of the counter to the next
    between  C follows S, scaled to fit             the segment's factor

With no counter C is S; with a counter alone, or one that is read as often as power changes, C is
linear between its readings. Each interval carries its method, so that no figure hides how it was
found.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from energy_callbacks.core.records import Channel, Energy, Method, Reading
from energy_callbacks.sensing.estimation import power_intervals
from energy_callbacks.sensing.estimation.cumulative_energy import CumulativeEnergy, Intervals
from energy_callbacks.sensing.estimation.power_intervals import PowerIntervals
from energy_callbacks.sensing.estimation.series import Array
from energy_callbacks.sensing.estimation.signal_variability import SignalVariability

# An anchor whose own time is uncertain by more than this share of its segment would add more
# error than it takes away: on an H200 samples and counter agree within 0.7 %
# (docs/how-it-measures.md, seven load patterns).
_ANCHOR_SHARE: Final = 0.01
# A counter and samples of one card that differ by more than a factor of two are not two views
# of the same energy: one of them is broken. Of power that is seen a quarter of the time, or read
# more slowly than the counter, only the order of magnitude is known.
_FACTOR_RANGE: Final = (0.5, 2.0)
_WIDE_FACTOR_RANGE: Final = (0.125, 8.0)
# Once their scale is known they agree within 1 % (H200): a tenth and six standard errors is amiss.
_UNUSUAL: Final = 0.1
_UNUSUAL_ERRORS: Final = 6.0
# The scale of the samples changes by this much from one anchor to the next.
_SCALE_NOISE: Final = 0.001
# Ten segments of an H200 bring the scatter of the scale (0.7 % in a segment) down to 0.2 %.
_FACTOR_MEMORY_S: Final = 10.0
# Twice its longest interval and a little: one tick that is no good makes no gap.
_COUNTER_SILENT_S: Final = 9.0
_POWER_SILENT_S: Final = 2.0
# If readings are further apart than this share of the counter's rises, those are more accurate.
_DENSE: Final = 1.05
_MOST_UNREAD: Final = 500
# A segment of this many readings or more holds its own ends no better than the readings do.
_LONG_SEGMENT: Final = 18
# The disagreement of readings and counter is judged over about this many segments ...
_SURPRISE_MEMORY: Final = 10.0
# ... and begins with this share of what the readings state themselves.
_SURPRISE_PRIOR: Final = 0.2
# A counter that agrees better than stated narrows the stated error by this much at most.
_LEAST_DOUBT: Final = 0.8


@dataclass(frozen=True, slots=True)
class _CounterReading:
    t_s: float
    energy_j: float
    t_error_s: float


class EnergyCurve:
    """Cumulative energy of one device, growing with its readings.

    Up to ``settled_s`` it never changes again; from there to ``newest_s`` it is provisional.

    Args:
        channels: the device's channels; those of quantity ``power`` and ``energy`` are used.
        keep_s: full resolution for this long, then one knot a second.
    """

    def __init__(self, channels: Sequence[Channel], keep_s: float = 600.0) -> None:
        power = next((channel for channel in channels if channel.quantity == "power"), None)
        counter = next((channel for channel in channels if channel.quantity == "energy"), None)
        self._shape = PowerIntervals(power) if power else None
        self._has_counter = counter is not None
        self._shape_method: Method = _method_of(power)
        self._anchored_method: Method = _anchored_method_of(power)
        self._relative_error = _relative_error(counter or power)
        self._knots = CumulativeEnergy(keep_s)
        self._committed = 0
        self._anchor: _CounterReading | None = None
        self._waiting: list[_CounterReading] = []
        self._factor: float | None = None
        self._known_j = np.zeros(2)
        self._counted = SignalVariability()
        self._surprise = np.zeros(2)
        self._doubt = 1.0
        self._segment_s = 1.0
        self._unread = 0
        self._disagreements = 0

    @property
    def settled_s(self) -> float | None:
        """The moment up to which the curve is final; ``None`` before the first."""
        self._read_up()
        return self._settled_s

    @property
    def _settled_s(self) -> float | None:
        return self._knots.time_of(self._committed - 1) if self._committed else None

    @property
    def start_s(self) -> float | None:
        """The first moment that was seen."""
        self._read_up()
        return self._knots.time_of(0) if len(self._knots) else None

    @property
    def newest_s(self) -> float | None:
        """The newest moment that was seen."""
        self._read_up()
        return self._knots.time_of(-1) if len(self._knots) else None

    @property
    def disagreements(self) -> int:
        """How often counter and readings disagreed."""
        self._read_up()
        return self._disagreements

    @property
    def impossible(self) -> int:
        """Power readings that no device can draw."""
        return self._shape.impossible if self._shape is not None else 0

    def energy(self, start_s: float, end_s: float) -> Energy:
        """Energy between two moments; they must differ."""
        self._read_up()
        width_s = end_s - start_s
        is_scaled = self._factor is not None
        scale_error = _SCALE_NOISE * min(width_s, self._segment_s) / width_s if is_scaled else 0.0
        return self._knots.energy(start_s, end_s, self._relative_error, scale_error)

    def seen(self, start_s: float, end_s: float) -> tuple[float | None, float]:
        """Joules and coverage of ``energy``, without what is known of their quality."""
        self._read_up()
        return self._knots.seen(start_s, end_s)

    def intervals(
        self, start_s: float, end_s: float, *, provisional: bool = False
    ) -> Intervals | None:
        """What ends after ``start_s`` and by ``end_s``, reading by reading.

        Args:
            start_s: start of the window, monotonic time.
            end_s: its end.
            provisional: also what may still change a little.
        """
        until_s = self.newest_s if provisional else self.settled_s
        if until_s is None:
            return None
        return self._knots.intervals(start_s, min(end_s, until_s), self._relative_error)

    def pin(self, t_s: float) -> None:
        """Keep the curve exact at this moment, permanently."""
        self._knots.pin(t_s)

    def add(self, readings: Sequence[Reading]) -> None:
        """Take in new readings of this device and settle what can be settled."""
        for reading in readings:
            if reading.channel.quantity == "power" and self._shape is not None:
                self._shape.add(reading.t_s, reading.value)
                self._unread += 1
            elif reading.channel.quantity == "energy":
                self._waiting.append(_CounterReading(reading.t_s, reading.value, reading.t_error_s))
                self._unread += 1
        if self._unread > _MOST_UNREAD:
            self._read_up()

    def _read_up(self) -> None:
        """Readings are processed at the next question, not one by one."""
        if self._unread:
            self._unread = 0
            self._update(is_final=False)

    def finish(self) -> None:
        """No more readings will come: settle everything."""
        self._update(is_final=True)

    def _update(self, *, is_final: bool) -> None:
        self._knots.truncate(self._committed)
        if self._shape is not None and self._settled_s is not None:
            # Readings that came after the counter had answered for their time.
            self._shape.take(self._settled_s)
        if self._has_counter:
            self._anchor_all(is_final=is_final)
        if self._shape is not None and (is_final or not self._has_counter):
            self._commit_shape(self._shape.take(), self._tail_method())
        self._committed -= self._knots.compact(self._committed)
        if self._shape is not None and len(self._shape):
            self._knots.append(self._as_knots(self._shape.open(), self._tail_method()))

    def _anchor_all(self, *, is_final: bool) -> None:
        while self._waiting and (is_final or self._is_ready(self._waiting[0])):
            self._take_anchor(self._waiting.pop(0))
        if self._shape is None or self._shape.end_s is None or self._waiting:
            return
        since_s = self._anchor.t_s if self._anchor else self._shape.start_s
        if since_s is not None and self._shape.end_s - since_s > _COUNTER_SILENT_S:
            self._commit_shape(self._shape.take(), "power")
            self._anchor = None

    def _is_ready(self, anchor: _CounterReading) -> bool:
        """Whether power readings have come as far as the anchor, or will not come at all."""
        if self._shape is None:
            return True
        end_s = self._shape.end_s if self._shape.end_s is not None else -np.inf
        return end_s >= anchor.t_s or self._waiting[-1].t_s - end_s > _POWER_SILENT_S

    def _take_anchor(self, anchor: _CounterReading) -> None:
        before = self._anchor
        if self._settled_s is not None and anchor.t_s < self._settled_s:
            return
        if before is None:
            self._anchor = anchor
            return
        width_s = anchor.t_s - before.t_s
        if width_s <= 0.0:
            return
        t_error_s = np.hypot(anchor.t_error_s, before.t_error_s)
        if self._shape is not None and t_error_s > _ANCHOR_SHARE * width_s:
            return
        self._anchor = anchor
        self._commit_segment(before, anchor)

    def _commit_segment(self, before: _CounterReading, anchor: _CounterReading) -> None:
        lead, segment = self._taken(before.t_s, anchor.t_s)
        rise_j, width_s = anchor.energy_j - before.energy_j, anchor.t_s - before.t_s
        is_covered = bool(segment[:, power_intervals.SEEN].sum() >= 0.5 * width_s)
        is_dense = self._shape is None or width_s <= _DENSE * self._shape.resolution_s
        if not self._is_plausible(rise_j, width_s, segment if is_covered else _NONE, is_dense):
            self._disagreements += 1
            self._commit_shape(np.concatenate([lead, segment]), "power")
            return
        self._counted.add(rise_j / width_s)
        self._segment_s += (width_s - self._segment_s) / _SURPRISE_MEMORY
        point = _anchor_variance(before, anchor)
        if is_dense or not is_covered:
            self._commit_shape(lead, "power")
            errors = self._errors_between_rises(rise_j, width_s, segment if is_dense else None)
            straight = _straight(before.t_s, anchor.t_s, rise_j, *errors)
            self._commit(straight, 1.0, "counter", point)
            return
        factor = self._learn_factor(rise_j, float(segment[:, power_intervals.AREA].sum()), width_s)
        self._commit_shape(lead, self._tail_method())
        self._restate(segment, rise_j / factor, point)
        fitted = _fitted(_seen_by_counter(segment), rise_j / factor)
        self._commit(fitted, factor, self._anchored_method, point)

    def _is_plausible(self, rise_j: float, width_s: float, segment: Array, is_dense: bool) -> bool:
        if not 0.0 <= rise_j <= power_intervals.MOST_POWER_W * width_s:
            return False
        if self._shape is None or not len(segment):
            return True
        if is_dense or self._shape.is_sparse:
            return _agree(rise_j, segment, _WIDE_FACTOR_RANGE)
        return _agree(rise_j, segment, _FACTOR_RANGE) and self._is_usual(rise_j, segment)

    def _is_usual(self, rise_j: float, segment: Array) -> bool:
        """Whether the counter fits what the readings, at their usual scale, say it must.

        A counter that freezes in the middle of a segment has gone only a part of the way.
        """
        has_holes = bool((segment[:, power_intervals.SEEN] == 0.0).any())
        if self._factor is None or has_holes:
            return True
        expected_j = self._factor * segment[:, power_intervals.AREA].sum()
        noise_j = self._factor * math.sqrt(self._doubt * segment[:, power_intervals.NOISE].sum())
        return bool(abs(rise_j - expected_j) <= _UNUSUAL * expected_j + _UNUSUAL_ERRORS * noise_j)

    def _errors_between_rises(
        self, rise_j: float, width_s: float, segment: Array | None
    ) -> tuple[float, float]:
        """EDGE and INSIDE of an interval that the counter alone has seen."""
        if segment is None or not self._counted.is_known:
            return 0.0, rise_j / math.sqrt(3.0)  # power may have been anything
        power_w, instant = rise_j / width_s, None
        seen = segment[segment[:, power_intervals.SEEN] > 0.0]
        if len(seen) and self._shape is not None and self._shape.window_s < width_s:
            off = (seen[:, power_intervals.AREA] / seen[:, power_intervals.SEEN] - power_w) ** 2
            off += (
                seen[:, power_intervals.BEND] ** 2 / 4.0
            )  # the readings are at the intervals' ends
            instant = float(np.average(off, weights=seen[:, power_intervals.SEEN]))
        return power_intervals.errors_of_mean(self._counted, power_w, width_s, instant)

    def _restate(self, segment: Array, energy_j: float, point: float) -> None:
        """If the counter contradicts the readings more or less than they state, so is stated."""
        off_j = energy_j - segment[:, power_intervals.AREA].sum()
        stated = segment[:, power_intervals.NOISE].sum() + (_SCALE_NOISE * energy_j) ** 2
        newest = np.array([max(off_j**2 - 2.0 * point, 0.0), stated])
        self._surprise += (newest - self._surprise) / _SURPRISE_MEMORY
        prior = _SURPRISE_PRIOR * self._surprise[1]
        ratio = (self._surprise[0] + prior) / max(self._surprise[1] + prior, 1e-30)
        self._doubt = max(ratio, _LEAST_DOUBT)
        segment[:, power_intervals.NOISE] *= self._doubt
        segment[:, power_intervals.EDGE] *= min(len(segment) / _LONG_SEGMENT, 1.0)

    def _learn_factor(self, rise_j: float, area_j: float, width_s: float) -> float:
        """The scale of what no anchor holds yet: a short segment alone may be far off."""
        keep = np.exp(-width_s / _FACTOR_MEMORY_S)
        self._known_j = keep * self._known_j + np.array([rise_j, area_j])
        self._factor = float(self._known_j[0] / self._known_j[1]) if self._known_j[1] else 1.0
        return self._factor or 1.0

    def _taken(self, start_s: float, end_s: float) -> tuple[Array, Array]:
        """Open intervals before the segment, and those of the segment with holes at its ends."""
        if self._shape is None:
            return _NONE, _NONE
        lead, segment = self._shape.take(start_s), self._shape.take(end_s)
        if len(segment):
            first, last = segment[0], segment[-1]
            before = _hole(start_s, first[power_intervals.START], first)
            after = _hole(last[power_intervals.END], end_s, last)
            segment = np.concatenate([[before], segment, [after]])
            segment = segment[segment[:, power_intervals.END] > segment[:, power_intervals.START]]
        return lead, segment

    def _tail_method(self) -> Method:
        return self._anchored_method if self._factor is not None else self._shape_method

    def _commit_shape(self, intervals: Array, method: Method) -> None:
        """Settle intervals that no counter stands behind; gaps among them stay unseen."""
        self._knots.append(self._as_knots(intervals, method))
        self._committed = len(self._knots)

    def _commit(self, intervals: Array, factor: float, method: Method, point: float) -> None:
        rows = self._knots.following(intervals, factor, method)
        self._knots.set_bridge(rows, point)
        self._knots.append(rows)
        self._committed = len(self._knots)

    def _as_knots(self, intervals: Array, method: Method) -> Array:
        return self._knots.following(_unseen_is_nothing(intervals), self._factor or 1.0, method)


_NONE: Final = np.empty((0, power_intervals.WIDTH))


def _hole(start_s: float, end_s: float, neighbour: Array) -> Array:
    """An interval without readings, which suggest what the one beside it has."""
    row = np.zeros(power_intervals.WIDTH)
    width_s = neighbour[power_intervals.END] - neighbour[power_intervals.START]
    area_j = neighbour[power_intervals.AREA] / width_s * (end_s - start_s)
    row[[power_intervals.START, power_intervals.END, power_intervals.AREA]] = start_s, end_s, area_j
    return row


def _agree(rise_j: float, segment: Array, factors: tuple[float, float]) -> bool:
    """Whether a counter fits the readings: power may have jumped anywhere between two of them."""
    area_j = segment[:, power_intervals.AREA].sum()
    slack_j = (
        np.abs(segment[:, power_intervals.BEND] * segment[:, power_intervals.SEEN]).sum() / 2.0
    )
    low, high = factors
    return bool(low * (area_j - slack_j) <= rise_j <= high * (area_j + slack_j))


def _fitted(intervals: Array, energy_j: float) -> Array:
    """Intervals that add up to ``energy_j``: those that may be wrong most are moved most."""
    fitted, area = intervals.copy(), intervals[:, power_intervals.AREA]
    whole_j, noise = area.sum(), intervals[:, power_intervals.NOISE]
    if not whole_j:
        return fitted
    by_noise = noise.sum() / (noise.sum() + (_SCALE_NOISE * whole_j) ** 2)
    shares = by_noise * noise / (noise.sum() or 1.0) + (1.0 - by_noise) * area / whole_j
    moved = area + (energy_j - whole_j) * shares
    fitted[:, power_intervals.AREA] = moved if (moved >= 0.0).all() else area * (energy_j / whole_j)
    return fitted


def _straight(start_s: float, end_s: float, energy_j: float, edge: float, inside_j: float) -> Array:
    """One interval known from the counter alone."""
    return np.array([[start_s, end_s, energy_j, 0.0, end_s - start_s, 0.0, edge, inside_j]])


def _seen_by_counter(intervals: Array) -> Array:
    """Intervals whose gaps the counter has seen; inside a gap power may be anything."""
    seen = intervals.copy()
    is_gap = seen[:, power_intervals.SEEN] == 0.0
    seen[is_gap, power_intervals.INSIDE] = np.abs(seen[is_gap, power_intervals.AREA]) / np.sqrt(3.0)
    seen[:, power_intervals.SEEN] = seen[:, power_intervals.END] - seen[:, power_intervals.START]
    return seen


def _unseen_is_nothing(intervals: Array) -> Array:
    """Intervals in which a gap adds no energy: it is reported as not covered, never bridged."""
    is_seen = intervals[:, power_intervals.SEEN] != 0.0
    if is_seen.all():
        return intervals
    known = intervals.copy()
    known[~is_seen, power_intervals.AREA] = 0.0
    return known


def _anchor_variance(before: _CounterReading, anchor: _CounterReading) -> float:
    """Variance of C at an anchor, J^2: mean power times its uniform error in time.

    Half of it: neighbouring anchors come from one clock of ticks and are off by nearly the same.
    """
    power_w = (anchor.energy_j - before.energy_j) / (anchor.t_s - before.t_s)
    return float((power_w * max(before.t_error_s, anchor.t_error_s)) ** 2 / 6.0)


def _method_of(power: Channel | None) -> Method:
    if power is None:
        return "counter"
    return "model" if power.device.origin == "estimated" else "power"


def _anchored_method_of(power: Channel | None) -> Method:
    if power is None:
        return "counter"
    is_buffered = power.sensor is not None and power.sensor.is_buffered
    return "counter+samples" if is_buffered else "counter+power"


def _relative_error(channel: Channel | None) -> float:
    return channel.sensor.relative_error if channel and channel.sensor else 0.0
