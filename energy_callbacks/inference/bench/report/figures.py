"""Computes the figures of one run from its rows: throughput, power above the cap, energy.

The first 5 s after the start and after each change of the cap are transient: shares of time and the
share of the optimum count the other windows only. Each part of the schedule begins at the first
window with its cap.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import mean
from typing import Final

from energy_callbacks.inference.bench.rows import Row

# Windows count from this time after a change of the cap, s.
TRANSIENT_S: Final = 5.0
# A part has settled if its power stays below the cap, and in this band around its steady value, as
# a share: the usual band of 5 % of settling times.
_BAND: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The figures of one run. ``None`` is an unknown value.

    Attributes:
        throughput_per_s: mean samples per second of the second half of the windows, as published.
        whole_throughput_per_s: mean samples per second of all windows.
        above_share: share of the counted time in windows whose mean power is above the cap, 0 to 1.
        overshoot_w: largest mean power of a window above the cap, of all windows, W; 0 if none is.
        excess_j: energy above the cap, of all windows, J.
        settling_s: longest time from a change of the cap until the power has settled, s; ``None``
            if it has not settled before the next change.
        j_per_request: joules per sample, over all windows.
        optimum_share: samples of the counted windows, divided by those of the best operating point.
        optimum_per_s: samples per second of the best operating point, in the counted time.
    """

    throughput_per_s: float
    whole_throughput_per_s: float
    above_share: float | None
    overshoot_w: float
    excess_j: float
    settling_s: float | None
    j_per_request: float | None
    optimum_share: float | None = None
    optimum_per_s: float | None = None


def figures(rows: Sequence[Row], best_per_s: Callable[[float], float | None]) -> Figures:
    """Return the figures of a run.

    Args:
        rows: all rows of the run in time order.
        best_per_s: returns the samples per second of the best operating point under a cap in W;
            ``None`` if it is not known.

    Raises:
        ValueError: if there are no rows.
    """
    if not rows:
        raise ValueError("a run without rows has no figures; its file is incomplete")
    parts = _parts(rows)
    counted = [row for part in parts for row in part if is_counted(row, part[0].start_s)]
    samples = sum(row.throughput_per_s * row.duration_s for row in rows)
    energy_j = sum(row.energy_j for row in rows)
    done, possible = _against_best(counted, best_per_s)
    counted_s = sum(row.duration_s for row in counted)
    return Figures(
        throughput_per_s=_rate(rows[len(rows) // 2 :]),
        whole_throughput_per_s=_rate(rows),
        above_share=_above_share(counted),
        overshoot_w=max(0.0, *(row.power_mean_w - row.cap_w for row in rows)),
        excess_j=sum(max(0.0, row.power_mean_w - row.cap_w) * row.duration_s for row in rows),
        settling_s=_longest([settling_s(part) for part in parts]),
        j_per_request=energy_j / samples if samples else None,
        optimum_share=done / possible if possible else None,
        optimum_per_s=possible / counted_s if possible else None,
    )


def is_counted(row: Row, changed_s: float) -> bool:
    """Return whether a window begins after the transient of a change at ``changed_s``."""
    return row.start_s >= changed_s + TRANSIENT_S - 1e-6


def settling_s(part: Sequence[Row]) -> float | None:
    """Return the time until the power has settled after the first window of a part began.

    After it, no window is above the cap, or farther than 5 % from the mean of the second half
    of the part. ``None`` if that is not true of the last window.
    """
    steady_w = mean(row.power_mean_w for row in part[len(part) // 2 :])

    def is_outside(row: Row) -> bool:
        is_far = abs(row.power_mean_w / steady_w - 1.0) > _BAND
        return row.power_mean_w > row.cap_w or is_far

    outside = [index for index, row in enumerate(part) if is_outside(row)]
    if not outside:
        return 0.0
    return None if outside[-1] == len(part) - 1 else part[outside[-1]].end_s - part[0].start_s


def _parts(rows: Sequence[Row]) -> list[list[Row]]:
    return [list(part) for _, part in groupby(rows, key=lambda row: row.cap_w)]


def _rate(rows: Sequence[Row]) -> float:
    samples = sum(row.throughput_per_s * row.duration_s for row in rows)
    return samples / sum(row.duration_s for row in rows)


def _above_share(rows: Sequence[Row]) -> float | None:
    total_s = sum(row.duration_s for row in rows)
    above_s = sum(row.duration_s for row in rows if row.power_mean_w > row.cap_w)
    return above_s / total_s if total_s else None


def _longest(times_s: Sequence[float | None]) -> float | None:
    known = [one for one in times_s if one is not None]
    return max(known) if len(known) == len(times_s) else None


def _against_best(
    rows: Sequence[Row], best_per_s: Callable[[float], float | None]
) -> tuple[float, float]:
    """Return the samples of rows, and those of the best operating point; 0 if it is unknown."""
    best = {cap_w: best_per_s(cap_w) for cap_w in {row.cap_w for row in rows}}
    done = sum(row.throughput_per_s * row.duration_s for row in rows)
    possible = sum((best[row.cap_w] or 0.0) * row.duration_s for row in rows)
    return done, 0.0 if None in best.values() else possible
