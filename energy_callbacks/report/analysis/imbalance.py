"""Finds ranks that differ from the others beyond chance, if the difference matters.

Data-parallel ranks take each step together, so one that is slow slows all, and no journal sees the
time in which they wait for each other. What a journal does see of a slow rank is how long it waits
for data, how many samples its steps hold, and the power of its cards.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

import numpy as np

from energy_callbacks.core import formatting
from energy_callbacks.core.stats import t_quantile
from energy_callbacks.report.collect.merge import MergedAttempt
from energy_callbacks.report.collect.process import ProcessJournal
from energy_callbacks.report.collect.rows import Array
from energy_callbacks.report.model.models import Imbalance, RankUse

# Waits vary: as many stretches of the training as there are, up to 20, show by how much.
_FEWEST_STRETCHES, _MOST_STRETCHES = 8, 20
# A difference below this share, of the training's time or of a step's samples, changes nothing.
_MATTERS = 0.01
_CONFIDENCE = 0.95
Quantity = Literal["data_wait", "samples_per_step", "gpu_power"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gap:
    """How far a rank is from the median of the others, and the half-width of the interval."""

    place: int
    value: float
    median: float
    error: float

    @property
    def size(self) -> float:
        return abs(self.value - self.median)


def imbalances(
    attempts: Iterable[MergedAttempt], table: Iterable[RankUse]
) -> tuple[Imbalance, ...]:
    """The rank that stands out most in each respect, attempt by attempt."""
    by_attempt: dict[int, list[RankUse]] = defaultdict(list)
    for row in table:
        by_attempt[row.attempt].append(row)
    return tuple(
        found
        for attempt in attempts
        if attempt.number in by_attempt
        for found in _of_attempt(attempt, by_attempt[attempt.number])
    )


def _of_attempt(attempt: MergedAttempt, rows: Sequence[RankUse]) -> Iterator[Imbalance]:
    wait, samples, power = data_wait(attempt.processes), _samples(rows), _power(rows)
    common_s = 0.0 if wait is None else _common_s(rows, wait.place)
    if wait is not None and common_s > 0.0 and wait.size >= _MATTERS * common_s:
        yield _imbalance(
            "data_wait",
            wait,
            rows,
            f"waited {formatting.duration(wait.value)} for data, "
            f"{formatting.percent(wait.value / common_s)} of its training; the median of the "
            "others "
            f"is {formatting.duration(wait.median)}. Where all take each step together the others "
            "wait for it",
        )
    if samples is not None:
        yield _imbalance(
            "samples_per_step",
            samples,
            rows,
            f"worked on {formatting.grouped(samples.value)} samples a step; the median of the "
            f"others is {formatting.grouped(samples.median)}. Where all take each step together "
            "those with fewer wait for those with more",
        )
    if power is not None:
        yield _imbalance(
            "gpu_power",
            power,
            rows,
            f"drew {formatting.power(power.value)} with its GPUs while it trained; the median of "
            "the "
            f"others is {formatting.power(power.median)}. A card that waits for others draws less, "
            "and so does one whose clocks are held down",
        )


def _common_s(rows: Sequence[RankUse], place: int) -> float:
    """Training time of a rank, over the steps that all ranks have done."""
    return rows[place].train_s * min(row.steps for row in rows) / rows[place].steps


def _imbalance(quantity: Quantity, gap: _Gap, rows: Sequence[RankUse], says: str) -> Imbalance:
    row = rows[gap.place]
    return Imbalance(
        attempt=row.attempt,
        host=row.host,
        rank=row.rank,
        quantity=quantity,
        value=gap.value,
        median=gap.median,
        error=gap.error,
        message=f"Rank {row.rank} (attempt {row.attempt}, host {row.host}) {says}.",
    )


def data_wait(processes: Sequence[ProcessJournal]) -> _Gap | None:
    """The rank that waited longest for data, if it is no chance that it did.

    All ranks are compared over the same steps. Differences from the median of the others in
    stretches of as many steps are compared with zero by Student's t, at 95 % for all ranks
    together.
    """
    waits_s = _waits_s(processes)
    if waits_s is None:
        return None
    ranks, stretches = waits_s.shape
    gaps_s = waits_s - np.array([np.median(np.delete(waits_s, i, 0), axis=0) for i in range(ranks)])
    place = int(gaps_s.sum(axis=1).argmax())
    error_s = float(
        t_quantile(1.0 - (1.0 - _CONFIDENCE) / (2.0 * ranks), stretches - 1)
        * gaps_s[place].std(ddof=1)
        * np.sqrt(stretches)
    )
    value_s, gap_s = float(waits_s[place].sum()), float(gaps_s[place].sum())
    if gap_s <= error_s:
        return None
    return _Gap(place=place, value=value_s, median=value_s - gap_s, error=error_s)


def _waits_s(processes: Sequence[ProcessJournal]) -> Array | None:
    """Waits of each rank in equal stretches of the steps that all have done, (ranks, stretches)."""
    told = [[line for line in process.steps if line["steps"]] for process in processes]
    count = min(*map(len, told), _MOST_STRETCHES)
    if count < _FEWEST_STRETCHES or any(
        line["data_wait_s"] is None for lines in told for line in lines
    ):
        return None
    steps = [np.cumsum([0.0] + [line["steps"] for line in lines]) for lines in told]
    waited_s = [np.cumsum([0.0] + [line["data_wait_s"] for line in lines]) for lines in told]
    edges = np.linspace(0.0, min(one[-1] for one in steps), count + 1)
    return np.array(
        [np.diff(np.interp(edges, *curve)) for curve in zip(steps, waited_s, strict=True)]
    )


def _samples(rows: Sequence[RankUse]) -> _Gap | None:
    """The rank whose steps differ most in samples; they are counted, so without error."""
    per_step = [row.samples / row.steps for row in rows if row.samples is not None and row.steps]
    if len(per_step) < len(rows):
        return None
    widest = max(_gaps(per_step, [0.0] * len(rows)), key=lambda gap: gap.size)
    return widest if widest.size >= _MATTERS * widest.median else None


def _power(rows: Sequence[RankUse]) -> _Gap | None:
    """The rank whose cards drew the most or the least, beyond the errors of all; shared: none."""
    if any(row.gpu_power_w is None or row.shares_gpus for row in rows):
        return None
    if len({len(row.gpus) for row in rows}) > 1:
        return None
    powers_w = [row.gpu_power_w or 0.0 for row in rows]
    errors_w = [
        power_w * row.gpu.error_j / (row.gpu.energy_j or 1.0)
        for power_w, row in zip(powers_w, rows, strict=True)
    ]
    resolved = [gap for gap in _gaps(powers_w, errors_w) if gap.size > gap.error]
    return max(resolved, key=lambda gap: gap.size, default=None)


def _gaps(values: Sequence[float], errors: Sequence[float]) -> Iterator[_Gap]:
    """Each value beside the median of the others, with its own error and their largest."""
    for place, value in enumerate(values):
        others = [*values[:place], *values[place + 1 :]]
        error = errors[place] + max([*errors[:place], *errors[place + 1 :]])
        yield _Gap(place=place, value=value, median=median(others), error=error)
