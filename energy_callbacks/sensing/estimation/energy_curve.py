"""Computes the cumulative energy C(t) of a device from its power readings and its energy counter.

The energy counter determines the total, and power readings determine the shape::

    shape    S(t) = integral of (s + tau ds/dt)   s: power readings, shifted back by the sensor's
                                                  lag; tau: the sensor's response time
    anchor   a reading of the counter             between two anchors, C rises by as much as the
                                                  counter
    segment  the time between two anchors         in a segment, C has the shape of S
    factor   rise of the counter / rise of S      averaged over recent segments; S is multiplied by
                                                  the factor where there are no anchors

Without a counter, C is S. Power readings are not used between two anchors if they cover less than
half of the time, or if the anchors are about as frequent as updates of the power readings. C is
then linear between the anchors, or has the shape that ``counted_intervals`` finds.
A counter whose sensor ``is_checked`` is read together with the power, so that its anchors are as
frequent. It is used only while it agrees with the power readings (``CounterCheck``).
Each interval has a method, so that every figure can state how it was computed.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from energy_callbacks.core.records import Channel, Energy, Method, Reading
from energy_callbacks.sensing.estimation import power_intervals as iv
from energy_callbacks.sensing.estimation.beats import Beats
from energy_callbacks.sensing.estimation.counted_intervals import CountedIntervals, Shaped
from energy_callbacks.sensing.estimation.counter_fit import FitToCounter
from energy_callbacks.sensing.estimation.cumulative_energy import JUMP, CumulativeEnergy, Intervals
from energy_callbacks.sensing.estimation.exposure import Shape
from energy_callbacks.sensing.estimation.power_intervals import PowerIntervals, Row
from energy_callbacks.sensing.estimation.series import Array
from energy_callbacks.sensing.estimation.step_waves import follow_steps

# After this number of seconds without an anchor, power readings are used alone. The number is a
# little more than twice the longest interval between two reads of the counter (4 s), so that a
# single unusable counter reading has no effect.
_COUNTER_SILENT_S: Final = 9.0
# A counter reading waits until power readings reach its time, but not if the newest power reading
# is older than the newest counter reading by more than this number of seconds.
_POWER_SILENT_S: Final = 2.0
# New readings are processed at the next query, or earlier if there are more of them than this.
_MOST_UNREAD: Final = 500


class EnergyCurve:
    """Computes the cumulative energy of one device from the readings that are added.

    The curve is final up to ``settled_s``, and provisional from ``settled_s`` to ``newest_s``.

    Args:
        channels: the device's channels; the first of quantity ``power`` and the first of quantity
            ``energy`` are used.
        keep_s: how long the curve keeps its full resolution, s; older parts keep one knot per
            second, and one knot at each moment passed to ``pin``.
    """

    def __init__(self, channels: Sequence[Channel], keep_s: float = 600.0) -> None:
        by_quantity = {channel.quantity: channel for channel in reversed(channels)}
        power, counter = by_quantity.get("power"), by_quantity.get("energy")
        power_sensor = power.sensor if power else None
        sensor = counter.sensor if counter else power_sensor
        is_estimated = power is not None and power.device.origin == "estimated"
        is_buffered = power_sensor is not None and power_sensor.is_buffered
        self._shape = PowerIntervals(power)
        self._beats = Beats(power)
        self._has_counter = counter is not None
        is_checked = sensor is not None and sensor.is_checked
        self._counter = FitToCounter(
            self._shape, has_power=power is not None, is_checked=is_checked
        )
        self._shape_method: Method = "model" if is_estimated else "power"
        self._anchored_method: Method = "counter+samples" if is_buffered else "counter+power"
        self._relative_error = sensor.relative_error if sensor else 0.0
        self._knots = CumulativeEnergy(keep_s)
        self._committed = 0
        self._anchor: Reading | None = None
        self._waiting: list[Reading] = []
        self._counted = CountedIntervals(self._shape.window_s if power else math.inf)
        self._unread = 0

    @property
    def settled_s(self) -> float | None:
        """The moment up to which the curve is final; ``None`` if no part of it is final yet."""
        self.process()
        return self._knots.time_of(self._committed - 1) if self._committed else None

    @property
    def _used_s(self) -> float:
        """The moment up to which readings have been used."""
        if len(self._counted):
            return self._counted.end_s
        return self._knots.time_of(self._committed - 1) if self._committed else -math.inf

    @property
    def start_s(self) -> float | None:
        """Start of the curve; ``None`` before the first interval."""
        self.process()
        return self._knots.time_of(0) if len(self._knots) else None

    @property
    def newest_s(self) -> float | None:
        """End of the curve, including the provisional part; ``None`` before the first interval."""
        self.process()
        return self._knots.time_of(-1) if len(self._knots) else None

    @property
    def disagreements(self) -> int:
        """Number of segments in which the counter contradicted the power readings.

        Includes segments in which the counter decreased or rose faster than ``MOST_POWER_W``, and
        those for which ``CounterCheck`` found that the counter must not be used.
        """
        self.process()
        return self._counter.disagreements

    @property
    def shape(self) -> Shape:
        """How the energies of intervals that are not from the counter depend on a jump of power."""
        return self._shape.shape

    @property
    def impossible(self) -> int:
        """Number of power readings below 0 or above ``MOST_POWER_W``, which were dropped."""
        return self._shape.impossible

    def energy(self, start_s: float, end_s: float) -> Energy:
        """Return the energy from ``start_s`` to the later time ``end_s``, with its errors."""
        self.process()
        scale_error = self._counter.scale_error(end_s - start_s)
        energy = self._knots.energy(start_s, end_s, self._relative_error, scale_error)
        return self._with_beats(energy, start_s, end_s) if self._beats.is_known else energy

    def _with_beats(self, energy: Energy, start_s: float, end_s: float) -> Energy:
        """Return the energy with the error that beats of steps and readings add."""
        if energy.energy_j is None:
            return energy
        edge_j = self._beats.edge_j(
            energy, start_s, end_s, knots=self._knots, counted_s=self._counter.segment_s
        )
        return energy if edge_j == energy.edge_j else replace(energy, edge_j=edge_j)

    def note_period(self, period_s: float) -> None:
        """Record the mean period of the training's steps from now on, s."""
        self._beats.note_period(period_s)
        self._counted.note_period(period_s)

    def seen(self, start_s: float, end_s: float) -> tuple[float | None, float]:
        """Return ``energy_j`` and ``coverage`` as ``energy`` does, without computing errors."""
        self.process()
        return self._knots.seen(start_s, end_s)

    def intervals(
        self, start_s: float, end_s: float, *, provisional: bool = False
    ) -> Intervals | None:
        """Return the intervals that end in (``start_s``, ``end_s``]; ``None`` if there are none.

        Args:
            start_s: start of the time span, monotonic time.
            end_s: end of the time span.
            provisional: whether to include intervals after ``settled_s``, whose energy may still
                change a little.
        """
        until_s = self.newest_s if provisional else self.settled_s
        if until_s is None:
            return None
        return self._knots.intervals(start_s, min(end_s, until_s), self._relative_error)

    def pin(self, t_s: float) -> None:
        """Keep a knot at this moment when old knots are thinned."""
        self._knots.pin(t_s)

    def add(self, readings: Sequence[Reading]) -> None:
        """Add new readings of this device; quantities other than power and energy are ignored."""
        for reading in readings:
            if reading.channel.quantity == "power":
                self._shape.add(reading.t_s, reading.value)
                self._beats.add(reading.t_s, reading.value)
                self._unread += 1
            elif reading.channel.quantity == "energy":
                self._waiting.append(reading)
                self._beats.reach(reading.t_s)
                self._unread += 1
        if self._unread > _MOST_UNREAD:
            self.process()

    def process(self) -> None:
        """Process the readings added since the last query, all at once; each query does this."""
        if self._unread:
            self._unread = 0
            self._update(is_final=False)

    def process_anchors(self) -> None:
        """Do the first half of ``process``, so that other threads can run before the second."""
        if self._unread:
            self._use_anchors(is_final=False)

    def finish(self) -> None:
        """Make the whole curve final, because no more readings will come."""
        self._update(is_final=True)

    def _use_anchors(self, *, is_final: bool) -> None:
        self._knots.truncate(self._committed)
        self._shape.take(self._used_s)  # drop intervals of late readings
        if self._has_counter:
            self._anchor_all(is_final=is_final)

    def _update(self, *, is_final: bool) -> None:
        self._use_anchors(is_final=is_final)
        if is_final or not self._has_counter:
            self._commit_shape(self._shape.take(), self._tail_method())
        self._committed -= self._knots.compact(self._committed)
        is_ahead = self._append_counted()
        if len(self._shape) and not is_ahead:
            self._knots.append(self._as_knots(self._shape.open(), self._tail_method()))

    def _append_counted(self) -> bool:
        """Append the provisional intervals of the counter alone.

        Returns:
            Whether they include counter readings that wait for power readings, which can only
            reduce their errors.
        """
        count = len(self._counted)
        if self._anchor is not None and self._anchor.t_s >= self._used_s:
            self._add_waiting(self._anchor)
        is_ahead = len(self._counted) > count
        self._append(self._counted.open())
        self._counted.truncate(count)
        return is_ahead

    def _add_waiting(self, before: Reading) -> None:
        if not self._counter.agrees:
            return
        for anchor in self._waiting:
            width_s, rise_j = anchor.t_s - before.t_s, anchor.value - before.value
            if not (self._counter.is_dense(width_s) and self._counter.is_usable(before, anchor)):
                continue
            rows = self._shape.open()
            seen = [r for r in rows if r[iv.START] >= before.t_s and r[iv.END] <= anchor.t_s]
            if self._counter.is_plausible(rise_j, width_s, seen, is_dense=True):
                point = _anchor_variance(before, anchor)
                self._counted.add(before.t_s, anchor.t_s, rise_j, point, seen)
                before = anchor

    def _anchor_all(self, *, is_final: bool) -> None:
        while self._waiting and (is_final or self._is_ready(self._waiting[0])):
            self._take_anchor(self._waiting.pop(0))
        self._commit_counted(is_final=is_final)
        since_s = self._anchor.t_s if self._anchor else self._shape.start_s
        if self._waiting or since_s is None:
            return
        if self._shape.end_s - since_s > _COUNTER_SILENT_S:
            self._commit_shape(self._shape.take(), "power")
            self._anchor = None

    def _is_ready(self, anchor: Reading) -> bool:
        """Return whether power readings reach the time of ``anchor`` or are not waited for."""
        end_s = self._shape.end_s
        return end_s >= anchor.t_s or self._waiting[-1].t_s - end_s > _POWER_SILENT_S

    def _take_anchor(self, anchor: Reading) -> None:
        before = self._anchor
        if anchor.t_s < self._used_s:
            return
        if before is not None:
            if not self._counter.is_usable(before, anchor):
                return
            self._commit_segment(before, anchor)
        self._anchor = anchor

    def _commit_segment(self, before: Reading, anchor: Reading) -> None:
        lead, segment = self._taken(before.t_s, anchor.t_s)
        rise_j, width_s = anchor.value - before.value, anchor.t_s - before.t_s
        is_covered = sum(row[iv.SEEN] for row in segment) >= 0.5 * width_s
        is_dense = self._counter.is_dense(width_s)
        compared = segment if is_covered else segment[:0]
        if not self._counter.is_believed(rise_j, width_s, compared, is_dense):
            self._commit_shape(lead + segment, "power")
            return
        self._counted.see(rise_j / width_s)
        point = _anchor_variance(before, anchor)
        if is_dense or not is_covered:
            if len(lead):
                self._commit_shape(lead, "power")
            if self._counted.end_s != before.t_s:
                self._commit_counted()
            dense = segment if is_dense else None
            self._counted.add(before.t_s, anchor.t_s, rise_j, point, dense)
            return
        shape = iv.table(segment)
        self._follow_steps(shape)
        factor = self._counter.fit(shape, rise_j, width_s, point)
        self._commit_shape(lead, self._tail_method())
        self._append_fitted(shape, factor, point)

    def _follow_steps(self, segment: Array) -> None:
        """Correct the intervals of a segment for the wave of short steps (``step_waves``).

        The first and the last interval are left out, because they were cut at anchors, where there
        are no readings.
        """
        period_s = self._beats.period_at(segment[-1, iv.END])
        spacing_s, response_s = self._shape.resolution_s, self._shape.shape.response_s
        if period_s is not None and response_s:
            follow_steps(segment[1:-1], period_s, spacing_s=spacing_s, response_s=response_s)

    def _taken(self, start_s: float, end_s: float) -> tuple[list[Row], list[Row]]:
        """Remove and return the power intervals before a segment, and those in the segment.

        If there are intervals in the segment, gaps at its ends are filled by intervals that no
        reading covers.
        """
        lead, segment = self._shape.take(start_s), self._shape.take(end_s)
        if segment and (first := segment[0])[iv.START] > start_s:
            segment.insert(0, _gap(start_s, first[iv.START], first))
        if segment and (last := segment[-1])[iv.END] < end_s:
            segment.append(_gap(last[iv.END], end_s, last))
        return lead, segment

    def _tail_method(self) -> Method:
        return self._anchored_method if self._counter.factor is not None else self._shape_method

    def _commit_shape(self, intervals: Sequence[Row], method: Method) -> None:
        """Make intervals final without fitting them to anchors; gaps reduce the coverage."""
        self._commit_counted()
        self._knots.append(self._as_knots(intervals, method))
        self._committed = len(self._knots)

    def _commit_counted(self, *, is_final: bool = True) -> None:
        """Make intervals of the counter alone final, if no later interval will change their shape.

        Many such intervals are made final at once, because that takes less processor time: on a
        V100 there are fifty of them every second.
        """
        self._append(self._counted.take(is_final=is_final))
        self._committed = len(self._knots)

    def _append(self, counted: Shaped) -> None:
        """Append the knots of intervals of the counter alone."""
        if len(counted.rows):
            rows = self._knots.following(counted.rows, 1.0, "counter")
            rows[-len(counted.rows) :, JUMP] = counted.jump_at
            self._knots.set_bridge(rows, counted.points)
            self._knots.append(rows)

    def _append_fitted(self, intervals: Array, factor: float, point: float) -> None:
        rows = self._knots.following(intervals, factor, self._anchored_method)
        self._knots.set_bridge(rows, point)
        self._knots.append(rows)
        self._committed = len(self._knots)

    def _as_knots(self, rows: Sequence[Row], method: Method) -> Array:
        intervals = iv.table(rows)
        intervals[intervals[:, iv.SEEN] == 0.0, iv.AREA] = 0.0  # gaps reduce the coverage
        return self._knots.following(intervals, self._counter.factor or 1.0, method)


def _gap(start_s: float, end_s: float, neighbour: Row) -> Row:
    """Return an interval that no reading covers, with the mean power of ``neighbour``."""
    row = [0.0] * iv.WIDTH
    width_s = neighbour[iv.END] - neighbour[iv.START]
    row[iv.START], row[iv.END] = start_s, end_s
    row[iv.AREA] = neighbour[iv.AREA] / width_s * (end_s - start_s)
    return row


def _anchor_variance(before: Reading, anchor: Reading) -> float:
    """Return the variance of C at two adjacent anchors, J^2, due to the error of their times.

    The time error is uniform in +- ``t_error_s``. Half of its variance is used, because the errors
    of adjacent anchors are similar and partly cancel.
    """
    power_w = (anchor.value - before.value) / (anchor.t_s - before.t_s)
    return float((power_w * max(before.t_error_s, anchor.t_error_s)) ** 2 / 6.0)
