"""Records of a batch-size search in a report, and the table of its trials."""

from dataclasses import dataclass
from operator import attrgetter
from typing import Literal

from energy_callbacks.core import formatting
from energy_callbacks.report.model import figure_format
from energy_callbacks.report.model.amounts import Ratio

# Column heads of the table that ``rows`` returns; the last column marks the chosen size
# and the sizes that did not fit.
HEAD = ("batch size", "samples/s", "power", "J/sample", "peak memory", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSizePoint:
    """The result of one trial of a batch size.

    Attributes:
        size: number of samples in a micro-batch on each rank.
        accumulation: number of micro-batches per optimizer step.
        fits: whether the trial ran without an out-of-memory error.
        reason: message of the out-of-memory error; empty if there was none.
        samples_per_s: throughput of all ranks together; ``None`` if the size did not fit.
        samples_per_s_error: half-width of the 95 % interval of ``samples_per_s``. The interval
            includes the random error only. ``None`` if the size did not fit.
        scope: whether ``power_w`` and ``j_per_sample`` are those of the GPUs or of the hosts.
        power_w: mean power of all devices in ``scope`` together; ``None`` if not known.
        j_per_sample: energy of all devices in ``scope`` per sample; ``None`` if not known.
        peak_bytes: peak memory of the device that came closest to its limit; ``None`` if not known.
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
    """The result of a search for a batch size.

    Attributes:
        size: chosen number of samples in a micro-batch on each rank; ``None`` if no size was
            chosen.
        why: reason for the choice, or why no size was chosen.
        objective: name of the objective, such as ``knee``, or the weight of the energy, 0 to 1.
        points: trials in the order in which they were run.
        memory_bytes: memory of the smallest device; ``None`` if not known.
        duration_s: duration of the search, in seconds.
        energy_j: energy that one rank measured during the search, J; ``None`` if not known.
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
        """The newest trial of the chosen size; ``None`` if no size was chosen."""
        ran = (point for point in reversed(self.points) if point.fits and point.size == self.size)
        return next(ran, None)

    @property
    def sentence(self) -> str:
        """Reason for the choice, number of trials, and the time and energy of the search."""
        cost = "" if self.energy_j is None else f" and {formatting.energy(self.energy_j)}"
        time = formatting.duration(self.duration_s)
        trials = f"{len(self.points)} trial{'' if len(self.points) == 1 else 's'}"
        return f"{self.why}; {trials} in {time}{cost}"


def rows(curve: BatchSizeCurve) -> list[tuple[str, ...]]:
    """Return the rows of a table of trials with the columns ``HEAD``, smallest size first."""
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
