"""Runs the configuration of a plan, and compares with its prediction and its power cap."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from energy_callbacks.inference.planner.plan import Plan
from energy_callbacks.inference.protocols import Bench
from energy_callbacks.inference.records import Interval, MeasuredWindow, Mode, Source

WINDOW_S: Final = 1.0
"""Length of the windows in which power is compared with the cap, s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A predicted quantity and its measured mean.

    Attributes:
        predicted: the prediction with its 90 % interval.
        measured: mean of all windows.
    """

    predicted: Interval
    measured: float

    @property
    def is_inside(self) -> bool:
        """Whether the measured mean is inside the interval."""
        return self.predicted.low <= self.measured <= self.predicted.high

    @property
    def difference(self) -> float:
        """Difference of the measured mean from the prediction, as a share of the prediction."""
        return self.measured / self.predicted.value - 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What running a plan has shown.

    Attributes:
        source: where the measurement comes from: ``measured`` or ``simulated``.
        windows: number of windows of one second with figures.
        failure: status and note of the window that failed; empty if none did. No more windows are
            measured after a failure.
        throughput: samples per second; ``None`` without windows.
        power: power in W; ``None`` without windows, or if power is not known.
        cap_w: the plan's power cap, W; ``None`` if it has none.
        share_within_cap: share of the windows whose mean power is at most the cap; ``None`` without
            a cap or without power.
    """

    source: Source
    windows: int
    failure: str
    throughput: Comparison | None
    power: Comparison | None
    cap_w: float | None
    share_within_cap: float | None

    def holds(self, least_share: float) -> bool:
        """Return whether the plan holds.

        Both means must be inside their intervals, and power must be at most the cap in at least
        ``least_share`` of the windows.
        """
        compared = (self.throughput, self.power)
        is_predicted = not self.failure and all(one and one.is_inside for one in compared)
        share = self.share_within_cap
        return is_predicted and (self.cap_w is None or (share is not None and share >= least_share))


def verify(
    plan: Plan,
    bench: Bench,
    *,
    seconds: int,
    warmup_s: float,
    mode: Mode | None = None,
    write: Callable[[MeasuredWindow], None] = lambda _: None,
) -> Verification:
    """Run the configuration of a plan for some seconds.

    Args:
        plan: the plan.
        bench: runs it.
        seconds: number of windows of one second.
        warmup_s: time before the first window, s.
        mode: inference or training; by default that of the plan, and inference if it has none.
        write: called with each row.
    """
    rows: list[MeasuredWindow] = []
    failure = ""
    source: Source = "measured"
    mode = mode or plan.prediction.mode or "infer"
    for number in range(seconds):
        row = bench.measure(
            plan.configuration,
            window_s=WINDOW_S,
            warmup_s=0.0 if number else warmup_s,
            phase="online",
            mode=mode,
        )
        source = row.source
        write(replace(row, note=row.note or "verification of a plan"))
        if row.status != "ok":
            failure = f"{row.status}: {row.note}"
            break
        rows.append(row)
    powers_w = [row.power_mean_w for row in rows if row.power_mean_w is not None]
    cap_w = plan.problem.cap_w
    within = [power_w <= cap_w for power_w in powers_w if cap_w is not None]
    rates = [row.throughput_per_s for row in rows if row.throughput_per_s is not None]
    return Verification(
        source=source,
        windows=len(rows),
        failure=failure,
        throughput=_compared(plan.prediction.throughput_per_s, rates),
        power=_compared(plan.prediction.power_w, powers_w),
        cap_w=cap_w,
        share_within_cap=sum(within) / len(within) if within else None,
    )


def _compared(predicted: Interval, values: list[float]) -> Comparison | None:
    if not values:
        return None
    return Comparison(predicted=predicted, measured=statistics.fmean(values))
