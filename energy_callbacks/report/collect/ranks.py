"""Computes work, waits and power of the ranks of an attempt, and finds ranks that differ.

Data-parallel ranks execute each step together, so one slow rank slows down all of them. Journals do
not contain the time that ranks wait for each other. They contain, for each rank, how long it waits
for data, how many samples its steps have, and the power of its GPUs. These three quantities are
compared with the median of the other ranks. At most one rank is reported per attempt and quantity,
and only if chance and measurement errors do not explain its difference.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from operator import attrgetter
from statistics import median
from typing import NamedTuple

import numpy as np

from energy_callbacks.accounting.metrics.energy_sums import UNKNOWN, total
from energy_callbacks.core.formatting import duration, grouped, percent, power
from energy_callbacks.core.stats import t_quantile
from energy_callbacks.report.collect import phases
from energy_callbacks.report.collect.figures import as_figure, sum_if_known
from energy_callbacks.report.collect.merge import MergedAttempt, energy_of
from energy_callbacks.report.collect.process import ProcessJournal
from energy_callbacks.report.collect.rows import Array
from energy_callbacks.report.model.amounts import Figure
from energy_callbacks.report.model.runs import Imbalance, Quantity, RankUse

# Minimum and maximum number of stretches of consecutive steps into which a training is divided, to
# estimate how much waits vary.
_FEWEST_STRETCHES, _MOST_STRETCHES = 8, 20
# Smallest difference of waits or samples that is reported. For waits, it is a share of the training
# time; for samples, it is a share of the median number per step.
_MATTERS = 0.01
# Confidence, for all ranks together, that a reported difference of waits is not due to chance.
_CONFIDENCE = 0.95
# The GPUs of a rank: maps the UUID of each GPU to the key of the GPU in the journal of the rank
# (``Device.key``, such as ``gpu0``). If the UUID is not known, this key replaces the UUID.
_Cards = dict[str, str]


class _Gap(NamedTuple):
    """The comparison of one rank with the median of the other ranks.

    Attributes:
        place: index of the rank in the compared values.
        value: value of the rank.
        median: median of the other ranks; for waits, the sum of the medians of all stretches.
        error: half-width of the 95 % interval of the difference; 0 for samples. For waits, the 95 %
            are the confidence for all ranks together.
    """

    place: int
    value: float
    median: float
    error: float

    @property
    def size(self) -> float:
        return abs(self.value - self.median)


def rank_table(attempts: Iterable[MergedAttempt]) -> tuple[RankUse, ...]:
    """Return one row for each rank of the attempts with several ranks."""
    return tuple(row for one in attempts if len(one.processes) > 1 for row in _rows(one))


def _rows(attempt: MergedAttempt) -> Iterator[RankUse]:
    for process in attempt.processes:
        hosts = [one for one in attempt.processes if one.host == process.host]
        own = {one.rank: _own(one, hosts) for one in hosts}
        mine = own.pop(process.rank)
        samples = sum_if_known(line["samples"] for line in process.steps)
        train_s = phases.durations_s(process).get("train", 0.0)
        gpu = _while_training(process, mine.values())
        seen_s = train_s * gpu.coverage
        is_known = gpu.energy_j is not None and gpu.is_resolved and seen_s > 0.0
        yield RankUse(
            attempt=attempt.number,
            host=process.host,
            rank=process.rank,
            gpus=tuple(mine.values()),
            shares_gpus=any(mine.keys() & cards.keys() for cards in own.values()),
            steps=sum(line["steps"] for line in process.steps),
            samples=None if samples is None else round(samples),
            train_s=train_s,
            data_wait_s=sum_if_known(line["data_wait_s"] for line in process.steps),
            gpu=gpu,
            gpu_power_w=(gpu.energy_j or 0.0) / seen_s if is_known else None,
        )


def _own(process: ProcessJournal, hosts: Iterable[ProcessJournal]) -> _Cards:
    """Return the GPUs on which a rank trains.

    A rank reads the GPUs on which it trains. The first rank of a host also reads the GPUs of the
    other ranks. Therefore GPUs that another rank of the host reads too are left out. If this leaves
    no GPU, all GPUs that the rank reads are returned.

    Args:
        process: the rank.
        hosts: all ranks of the attempt on the same host.
    """
    own = _read(process)
    others = {card for one in hosts if one is not process for card in _read(one)}
    return {card: key for card, key in own.items() if card not in others} or own


def _read(process: ProcessJournal) -> _Cards:
    lines = {key: line["device"] for key, line in process.devices.items()}
    return {line["uuid"] or key: key for key, line in lines.items() if line["kind"] == "gpu"}


def _while_training(process: ProcessJournal, gpus: Collection[str]) -> Figure:
    """Return the energy of GPUs in the phase ``train`` of a rank, as read by the same rank."""
    by_phase = [phases.energies(process, key, energy_of(process, key)) for key in gpus]
    train = total([energies.get("train", UNKNOWN) for energies in by_phase])
    return as_figure(train, {process.devices[key]["device"]["origin"] for key in gpus})


def imbalances(attempts: Iterable[MergedAttempt], rows: Sequence[RankUse]) -> tuple[Imbalance, ...]:
    """Return the ranks that differ from the others, at most one per attempt and quantity.

    Args:
        attempts: attempts of the run; attempts with a single process are skipped.
        rows: the ranks of the run.
    """
    return tuple(
        imbalance
        for one in attempts
        if len(one.processes) > 1
        for imbalance in _of_attempt(one, [row for row in rows if row.attempt == one.number])
    )


def _of_attempt(attempt: MergedAttempt, rows: Sequence[RankUse]) -> Iterator[Imbalance]:
    wait, samples, watts = data_wait(attempt.processes), _samples(rows), _power(rows)
    if wait is not None:
        # Estimated training time of the rank over the steps that all ranks have executed.
        row = rows[wait.place]
        common_s = row.train_s * min(one.steps for one in rows) / row.steps
        if common_s > 0.0 and wait.size >= _MATTERS * common_s:
            says = (
                f"waited {duration(wait.value)} for data ({percent(wait.value / common_s)} of its "
                f"training time); the median of the other ranks is {duration(wait.median)}. If the "
                "ranks synchronize at each step, the others wait for this rank"
            )
            yield _imbalance("data_wait", wait, rows, says)
    if samples is not None:
        says = (
            f"had {grouped(samples.value)} samples per step; the median of the other ranks is "
            f"{grouped(samples.median)}. If the ranks synchronize at each step, those with fewer "
            "samples wait for the others"
        )
        yield _imbalance("samples_per_step", samples, rows, says)
    if watts is not None:
        says = (
            f"used {power(watts.value)} on its GPUs during the training; the median of the other "
            f"ranks is {power(watts.median)}. GPUs that wait for other ranks, or that are "
            "throttled, use less power"
        )
        yield _imbalance("gpu_power", watts, rows, says)


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
    """Return the rank whose waits for data exceed the median of the other ranks most.

    ``None`` if waits are not known, if there are too few lines with steps (see ``_waits_s``), or if
    the difference may be due to chance.

    The ranks are compared over the steps that all of them have executed. These steps are divided
    into stretches with equal numbers of steps. The difference from the median of the other ranks is
    computed for each stretch. The differences are tested with Student's t, with a confidence of
    95 % for all ranks together.
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
    return _Gap(place, value_s, value_s - gap_s, error_s) if gap_s > error_s else None


def _waits_s(processes: Sequence[ProcessJournal]) -> Array | None:
    """Return the seconds that each rank waited in each stretch of steps, (ranks, stretches).

    ``None`` if waits are not known, or if the journal of a rank has fewer than
    ``_FEWEST_STRETCHES`` lines with steps.
    """
    lines = [[line for line in process.steps if line["steps"]] for process in processes]
    count = min(*map(len, lines), _MOST_STRETCHES)
    is_unknown = any(line["data_wait_s"] is None for own in lines for line in own)
    if count < _FEWEST_STRETCHES or is_unknown:
        return None
    steps, waited_s = (
        [np.cumsum([0.0] + [line[name] for line in own]) for own in lines]
        for name in ("steps", "data_wait_s")
    )
    edges = np.linspace(0.0, min(one[-1] for one in steps), count + 1)
    curves = zip(steps, waited_s, strict=True)
    return np.array([np.diff(np.interp(edges, *curve)) for curve in curves])


def _samples(rows: Sequence[RankUse]) -> _Gap | None:
    """Return the rank whose samples per step differ most from the median of the other ranks.

    ``None`` if the samples per step of a rank are not known, or if the difference is below 1 % of
    the median. The number of samples is counted, not measured, so its error is 0.
    """
    per_step = [row.samples / row.steps for row in rows if row.samples is not None and row.steps]
    if len(per_step) < len(rows):
        return None
    widest = max(_gaps(per_step, [0.0] * len(rows)), key=attrgetter("size"))
    matters = widest.size > 0.0 and widest.size >= _MATTERS * widest.median
    return widest if matters else None


def _power(rows: Sequence[RankUse]) -> _Gap | None:
    """Return the rank whose power differs most from the median of the other ranks.

    Only differences larger than their errors are considered. ``None`` if there is no such
    difference, if a power is not known, if ranks share GPUs, or if ranks have different numbers of
    GPUs.
    """
    is_unknown = any(row.gpu_power_w is None or row.shares_gpus for row in rows)
    if is_unknown or len({len(row.gpus) for row in rows}) > 1:
        return None
    powers_w = [row.gpu_power_w or 0.0 for row in rows]
    errors_w = [
        power_w * row.gpu.error_j / (row.gpu.energy_j or 1.0)
        for power_w, row in zip(powers_w, rows, strict=True)
    ]
    resolved = [gap for gap in _gaps(powers_w, errors_w) if gap.size > gap.error]
    return max(resolved, key=attrgetter("size"), default=None)


def _gaps(values: Sequence[float], errors: Sequence[float]) -> Iterator[_Gap]:
    """Yield a comparison of each value with the median of the other values.

    The error of the difference is the sum of the error of the value and the largest error of the
    other values.
    """
    for place, value in enumerate(values):
        others = [*values[:place], *values[place + 1 :]]
        error = errors[place] + max([*errors[:place], *errors[place + 1 :]])
        yield _Gap(place, value, median(others), error)
