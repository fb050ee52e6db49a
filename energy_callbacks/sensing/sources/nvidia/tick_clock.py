"""Predicts the ticks of a counter from observed ticks.

An observation of a tick is an interval that contains the time of the tick. Tick n happens at
``phase + n * period``, so each observation restricts phase and period to a strip between two
straight lines in the plane (phase, period). The points that agree with all observations form a
polygon. The ticks of an H200 are periodic: one polygon agreed with all observed ticks while seven
loads ran (docs/how-it-measures.md).
"""

from typing import Final

# Bounds of the period, s. The shortest known period is 20 ms (Volta), the longest is 104 ms.
SHORTEST_S: Final = 0.015
_LONGEST_S: Final = 0.30
_Point = tuple[float, float]


class TickClock:
    """Predicts the earliest and the latest time of ticks.

    The first observed tick has number 0. Until a second tick is observed, the period is only known
    to be from ``shortest_s`` to 0.3 s.

    Args:
        shortest_s: lower bound of the period, s.
    """

    def __init__(self, shortest_s: float = SHORTEST_S) -> None:
        self._origin_s = 0.0
        self._shortest_s = shortest_s
        self._corners: list[_Point] = []  # polygon: (phase - origin, period), s
        # Predicted ticks since the last observation: each is asked for several times.
        self._spans: dict[int, tuple[float, float]] = {}

    @property
    def period_s(self) -> tuple[float, float]:
        """The shortest and the longest possible period, s."""
        periods = [period for _, period in self._corners]
        return (min(periods), max(periods)) if periods else (self._shortest_s, _LONGEST_S)

    def span(self, number: int) -> tuple[float, float]:
        """Return the earliest and the latest time of tick ``number``, s; call ``see`` first."""
        found = self._spans.get(number)
        if found is None:
            times = [phase + number * period for phase, period in self._corners]
            found = self._origin_s + min(times), self._origin_s + max(times)
            self._spans[number] = found
        return found

    def number_at(self, t_s: float) -> int:
        """Return the number of the tick nearest to ``t_s``, for the middle of the possible periods.

        Requires an earlier call of ``see``.
        """
        low_s, high_s = self.period_s
        first_s, last_s = self.span(0)
        return round((t_s - (first_s + last_s) / 2.0) / ((low_s + high_s) / 2.0))

    def see(self, number: int, earliest_s: float, latest_s: float) -> bool:
        """Add the observation that tick ``number`` happened between two moments.

        The first observation must be of tick 0.

        Returns:
            Whether the observation agrees with the earlier ones. If not, all observations are
            discarded.
        """
        self._spans.clear()
        if not self._corners:
            self._origin_s = earliest_s
            width_s = latest_s - earliest_s
            low_s, high_s = self._shortest_s, _LONGEST_S
            self._corners = [(0.0, low_s), (width_s, low_s), (width_s, high_s), (0.0, high_s)]
            return True
        start_s, end_s = earliest_s - self._origin_s, latest_s - self._origin_s
        left = _clipped(self._corners, number, start_s, sign=1.0)
        self._corners = _clipped(left, number, end_s, sign=-1.0)
        return bool(self._corners)


def _clipped(corners: list[_Point], number: int, limit_s: float, sign: float) -> list[_Point]:
    """Return the part of a polygon with ``sign x (phase + number x period - limit_s) >= 0``.

    Each edge of the polygon is clipped in turn (Sutherland and Hodgman, CACM 17, 1974).
    """
    kept: list[_Point] = []
    for index, here in enumerate(corners):
        before = corners[index - 1]
        inside = sign * (here[0] + number * here[1] - limit_s)
        inside_before = sign * (before[0] + number * before[1] - limit_s)
        if (inside < 0.0) != (inside_before < 0.0):
            share = inside_before / (inside_before - inside)
            phase = before[0] + share * (here[0] - before[0])
            kept.append((phase, before[1] + share * (here[1] - before[1])))
        if inside >= 0.0:
            kept.append(here)
    return kept
