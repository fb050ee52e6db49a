"""Work, waiting for data and GPU power of each rank of an attempt."""

from collections.abc import Iterable, Iterator

from energy_callbacks.accounting.metrics.energy_sums import UNKNOWN, total
from energy_callbacks.report.collect import phases
from energy_callbacks.report.collect.figures import as_figure, sum_if_known
from energy_callbacks.report.collect.merge import MergedAttempt, energy_of
from energy_callbacks.report.collect.process import ProcessJournal
from energy_callbacks.report.model.models import Figure, RankUse

# Keys of cards in the journal of a rank, by UUID, or by key for cards without UUID.
_Cards = dict[str, str]


def rank_table(attempts: Iterable[MergedAttempt]) -> tuple[RankUse, ...]:
    """Returns one row for each rank of the attempts with several ranks."""
    return tuple(
        row for attempt in attempts if len(attempt.processes) > 1 for row in _rows(attempt)
    )


def _rows(attempt: MergedAttempt) -> Iterator[RankUse]:
    for process in attempt.processes:
        hosts = [one for one in attempt.processes if one.host == process.host]
        own = {one.rank: _own(one, hosts) for one in hosts}
        mine = own.pop(process.rank)
        is_shared = any(mine.keys() & cards.keys() for cards in own.values())
        yield _row(attempt.number, process, tuple(mine.values()), is_shared=is_shared)


def _own(process: ProcessJournal, hosts: Iterable[ProcessJournal]) -> _Cards:
    """Returns the cards that a rank trains on.

    The first rank of a host reads the cards of all ranks of the host. Cards that another rank reads
    too belong to that rank, unless the first rank would have no card left.
    """
    own = _read(process)
    others = {card for one in hosts if one is not process for card in _read(one)}
    return {card: key for card, key in own.items() if card not in others} or own


def _read(process: ProcessJournal) -> _Cards:
    lines = {key: line["device"] for key, line in process.devices.items()}
    return {line["uuid"] or key: key for key, line in lines.items() if line["kind"] == "gpu"}


def _row(
    attempt: int, process: ProcessJournal, gpus: tuple[str, ...], *, is_shared: bool
) -> RankUse:
    samples = sum_if_known(line["samples"] for line in process.steps)
    train_s = phases.durations_s(process).get("train", 0.0)
    gpu = _while_training(process, gpus)
    seen_s = train_s * gpu.coverage
    is_known = gpu.energy_j is not None and gpu.is_resolved and seen_s > 0.0
    return RankUse(
        attempt=attempt,
        host=process.host,
        rank=process.rank,
        gpus=gpus,
        shares_gpus=is_shared,
        steps=sum(line["steps"] for line in process.steps),
        samples=None if samples is None else round(samples),
        train_s=train_s,
        data_wait_s=sum_if_known(line["data_wait_s"] for line in process.steps),
        gpu=gpu,
        gpu_power_w=(gpu.energy_j or 0.0) / seen_s if is_known else None,
    )


def _while_training(process: ProcessJournal, gpus: Iterable[str]) -> Figure:
    """Returns the energy of cards in the phase ``train`` of a rank, as read by that rank."""
    known = [
        phases.energies(process, key, energy_of(process, key)).get("train", UNKNOWN) for key in gpus
    ]
    return as_figure(total(known), {process.devices[key]["device"]["origin"] for key in gpus})
