"""The records of a batch-size search in the report, and their table."""

from dataclasses import dataclass
from operator import attrgetter
from typing import Literal

from energy_callbacks.core import formatting
from energy_callbacks.report.model import figure_format
from energy_callbacks.report.model.amounts import Ratio

HEAD = ("batch size", "samples/s", "power", "J/sample", "peak memory", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSizePoint:
    """One trial.

    Attributes:
        size: samples that went through the model at once, on each rank.
        accumulation: this many times before the optimizer stepped.
        fits: whether it ran.
        reason: what the device said if it did not.
        samples_per_s: of all ranks; ``None`` if it did not run.
        samples_per_s_error: half-width of the 95 % interval, random alone.
        scope: whose power and energy it is.
        power_w: mean.
        j_per_sample: ``None`` if unknown.
        peak_bytes: of memory, on the device with the most.
    """

    size: int
    accumulation: int
    fits: bool
    reason: str
    samples_per_s: float | None
    samples_per_s_error: float | None
    scope: Literal["gpu", "host"]
    power_w: float | None
    j_per_sample: Ratio | None
    peak_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSizeCurve:
    """A search for a batch size.

    Attributes:
        size: the answer; ``None`` if there is none.
        why: this and no other, or why there is none.
        objective: what was asked for.
        points: in the order in which they were run.
        memory_bytes: of the device; ``None`` if unknown.
        duration_s: how long the search took.
        energy_j: what it cost; ``None`` if unknown.
    """

    size: int | None
    why: str
    objective: str
    points: tuple[BatchSizePoint, ...]
    memory_bytes: int | None
    duration_s: float
    energy_j: float | None

    @property
    def chosen(self) -> BatchSizePoint | None:
        """The newest trial of the chosen size."""
        ran = (point for point in reversed(self.points) if point.fits and point.size == self.size)
        return next(ran, None)

    @property
    def sentence(self) -> str:
        """The reason for the choice, and the cost of the search."""
        cost = "" if self.energy_j is None else f" and {formatting.energy(self.energy_j)}"
        time = formatting.duration(self.duration_s)
        return f"{self.why}; {len(self.points)} trials in {time}{cost}"


def rows(curve: BatchSizeCurve) -> list[tuple[str, ...]]:
    """Returns the table of trials with the columns ``HEAD``, smallest size first."""
    points = sorted(curve.points, key=attrgetter("size"))
    return [_row(point, "chosen" if point is curve.chosen else "") for point in points]


def _row(point: BatchSizePoint, remark: str) -> tuple[str, ...]:
    size = f"{point.size}" if point.accumulation == 1 else f"{point.size} x {point.accumulation}"
    if point.samples_per_s is None:
        return (size, *["-"] * 4, "out of memory")
    return (
        size,
        formatting.significant(point.samples_per_s, 4),
        formatting.power(point.power_w),
        _joules(point.j_per_sample),
        formatting.size(point.peak_bytes),
        remark,
    )


def _joules(ratio: Ratio | None) -> str:
    if ratio is None or not ratio.is_resolved:
        return figure_format.ratio(ratio)
    return " ± ".join(formatting.with_error(ratio.value_j, ratio.high_j - ratio.value_j))
