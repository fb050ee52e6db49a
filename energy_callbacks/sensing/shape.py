"""How a device's power readings fill time: one interval between each two of them."""

from typing import Final

import numpy as np

from energy_callbacks.records import Channel, Sensor
from energy_callbacks.sensing.series import Array

START, END, AREA, NOISE, SEEN, BEND, EDGE = range(7)
_WIDTH: Final = 7


class Shape:
    """Intervals that are not yet accounted for, (n, 7), without holes between them.

    ======  =======================================================================
    START   time, s
    END     time, s
    AREA    energy that the readings say, J: the trapezoid plus tau times the rise
    NOISE   variance of AREA, J^2: a jump may lie anywhere between two readings,
            so its trapezoid is off by a uniform +-rise * width / 2
    SEEN    seconds that were seen: the width, or 0 where readings are missing
    BEND    rise of power over the interval, W
    EDGE    error scale of a point inside, J: its variance is EDGE^2 x (1 - x)
    ======  =======================================================================
    """

    def __init__(self, channel: Channel) -> None:
        sensor = channel.sensor or Sensor(name="")
        self._is_mean = channel.kind == "mean"
        self._lag_s = sensor.lag_s
        self._response_s = sensor.response_s
        self._max_gap_s = _max_gap_s(channel, sensor)
        self._rows: list[Array] = []
        self._last: tuple[float, float] | None = None

    @property
    def start_s(self) -> float | None:
        """Where the first open interval begins; ``None`` without one."""
        return float(self._rows[0][START]) if self._rows else None

    @property
    def end_s(self) -> float | None:
        """Time of the newest reading, moved back by the lag; ``None`` before the first."""
        return self._last[0] if self._last else None

    def add(self, t_s: float, power_w: float) -> None:
        """Take in one reading; one that does not lie after the last is ignored."""
        t_s -= self._lag_s
        before, self._last = self._last, (t_s, power_w)
        if before is None:
            return
        if t_s <= before[0]:
            self._last = before
            return
        self._rows.append(self._interval(before, (t_s, power_w)))

    def _interval(self, before: tuple[float, float], now: tuple[float, float]) -> Array:
        (start_s, low_w), (end_s, high_w) = before, now
        width_s, rise_w = end_s - start_s, high_w - low_w
        if width_s > self._max_gap_s:
            return np.array([start_s, end_s, (low_w + high_w) / 2 * width_s, 0.0, 0.0, 0.0, 0.0])
        if self._is_mean:
            edge_j = abs(rise_w) * width_s / np.sqrt(3.0)
            return np.array([start_s, end_s, high_w * width_s, 0.0, width_s, 0.0, edge_j])
        area_j = (low_w + high_w) / 2 * width_s + self._response_s * rise_w
        spread_j = abs(rise_w) * width_s
        return np.array(
            [start_s, end_s, area_j, spread_j**2 / 12.0, width_s, rise_w, spread_j / 2.0]
        )

    def open(self) -> Array:
        """All intervals that were not taken yet, (n, 7)."""
        return np.array(self._rows) if self._rows else np.empty((0, _WIDTH))

    def take(self, until_s: float = np.inf) -> Array:
        """Remove and return what lies before ``until_s``; an interval across it is cut in two."""
        whole = [row for row in self._rows if row[END] <= until_s]
        rest = self._rows[len(whole) :]
        if rest and rest[0][START] < until_s:
            left, right = _cut(rest[0], until_s)
            whole, rest = [*whole, left], [right, *rest[1:]]
        self._rows = rest
        return np.array(whole) if whole else np.empty((0, _WIDTH))


def _cut(row: Array, t_s: float) -> tuple[Array, Array]:
    """Two intervals that together are ``row``: power is linear in it, so areas are parabolas."""
    width_s = row[END] - row[START]
    share = (t_s - row[START]) / width_s
    left, right = row * share, row * (1.0 - share)
    bow_j = row[BEND] * width_s * share * (1.0 - share) / 2.0
    left[AREA] -= bow_j
    right[AREA] += bow_j
    left[[START, END]] = row[START], t_s
    right[[START, END]] = t_s, row[END]
    return left, right


def _max_gap_s(channel: Channel, sensor: Sensor) -> float:
    """Readings further apart than this leave a gap; a mean says what was between them."""
    if channel.kind == "mean" or sensor.period_s is None:
        return np.inf
    return max(5.0 * sensor.period_s, 1.0)
