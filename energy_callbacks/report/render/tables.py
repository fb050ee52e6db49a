"""Builds the tables of a report, for plain text and for the terminal."""

from collections.abc import Iterator
from operator import attrgetter

from energy_callbacks.core import formatting
from energy_callbacks.core.formatting import or_dash
from energy_callbacks.report.charts.sections import (
    Section,
    batch_size_sections,
    profile_sections,
)
from energy_callbacks.report.model import figure_format
from energy_callbacks.report.model.amounts import Figure
from energy_callbacks.report.model.runs import Attempt, DeviceUse, Phase, RankUse
from energy_callbacks.report.model.schema import EnergyReport
from energy_callbacks.report.render.headline import known_ratios

_Row = tuple[str, ...]


def energy_tables(report: EnergyReport) -> Iterator[Section]:
    """Yield the tables of phases, units of work, GPU activity and devices; they may be empty."""
    head: _Row = ("phase", "time", "gpu", "host", "total", "±", "share")
    yield Section(title="Energy by phase", head=head, rows=[*map(_phase, report.phases)])
    head = ("per", "energy", "95 % interval", "steps")
    yield Section(title="Energy per unit of work", head=head, rows=ratio_rows(report))
    head = ("phase", "SM active", "SM occupancy", "tensor active", "DRAM active")
    yield Section(title="GPU activity", head=head, rows=_activities(report))
    several = len({device.host for device in report.devices}) > 1
    yield Section(
        title="Devices",
        head=("device", "energy", "±", "mean", "peak", "memory", "origin"),
        rows=[_device(one, several) for one in report.devices if one.scope is not None],
        notes=[f"{one.key}: {note}" for one in report.devices for note in one.notes],
    )


def run_tables(report: EnergyReport) -> Iterator[Section]:
    """Yield the tables of attempts, ranks, batch-size searches and profiles; they may be empty."""
    yield Section(
        title="Attempts",
        head=("attempt", "host", "rank", "status", "time", "steps", "energy", "±"),
        rows=[*map(_attempt, report.attempts)] if len(report.attempts) > 1 else [],
        notes=_attempt_jobs(report),
    )
    several = len({one.attempt for one in report.ranks}) > 1
    yield Section(
        title="Ranks",
        head=("rank", "GPUs", "steps", "samples", "training", "data wait", "gpu", "mean"),
        rows=[_rank(one, with_attempt=several) for one in report.ranks],
    )
    yield from batch_size_sections(report)
    yield from profile_sections(report.profile)


def _phase(phase: Phase) -> _Row:
    return (
        phase.name,
        formatting.duration(phase.duration_s),
        *map(_energy, (phase.gpu, phase.host, phase.total)),
        figure_format.error(phase.total),
        figure_format.share(phase),
    )


def ratio_rows(report: EnergyReport) -> list[_Row]:
    """Return a row for each known energy per unit of work: value, interval and steps."""
    return [
        (
            f"{unit}, {scope}",
            figure_format.ratio(ratio),
            figure_format.ratio_interval(ratio),
            or_dash(ratio.steps, formatting.grouped),
        )
        for scope, efficiency in (
            ("gpu", report.efficiency.gpu),
            ("total", report.efficiency.total),
        )
        for unit, ratio in reversed(known_ratios(efficiency))
    ]


def _activities(report: EnergyReport) -> list[_Row]:
    """Return a row of GPU activity for each phase in which a GPU reported its activity."""
    shares = attrgetter("sm_active", "sm_occupancy", "tensor_active", "dram_active")
    return [
        (phase.name, *(or_dash(one, formatting.percent) for one in shares(phase.activity)))
        for phase in report.phases
        if phase.activity is not None
    ]


def _device(device: DeviceUse, with_host: bool) -> _Row:
    return (
        f"{device.key} {device.host if with_host else device.name}",
        _energy(device.energy),
        figure_format.error(device.energy),
        or_dash(device.mean_power_w if device.energy.is_resolved else None, formatting.power),
        or_dash(device.peak_power_w, formatting.power),
        or_dash(device.memory_peak_bytes, formatting.size),
        f"in {device.counted_in}" if device.counted_in else device.origin,
    )


def _attempt(attempt: Attempt) -> _Row:
    return (
        str(attempt.attempt),
        attempt.host,
        str(attempt.rank),
        attempt.status,
        formatting.duration(attempt.duration_s),
        str(attempt.steps),
        _energy(attempt.energy),
        figure_format.error(attempt.energy),
    )


def _attempt_jobs(report: EnergyReport) -> list[str]:
    """Return a line for each batch job with its attempts; none if ``run.job`` is the only job."""
    attempts: dict[str, dict[int, None]] = {}
    for one in report.attempts:
        if one.job is not None:
            attempts.setdefault(one.job.label, {})[one.attempt] = None
    if set(attempts) <= {report.run.job.label if report.run.job else ""}:
        return []
    return [f"attempt {formatting.listed(list(ids))}: {job}" for job, ids in attempts.items()]


def _rank(rank: RankUse, *, with_attempt: bool) -> _Row:
    place = f"{rank.rank} {rank.host}"
    return (
        f"{rank.attempt}: {place}" if with_attempt else place,
        figure_format.cards(rank),
        formatting.grouped(rank.steps),
        or_dash(rank.samples, formatting.grouped),
        formatting.duration(rank.train_s),
        or_dash(rank.data_wait_s, formatting.duration),
        _energy(rank.gpu),
        or_dash(rank.gpu_power_w, formatting.power),
    )


def _energy(figure: Figure) -> str:
    return "-" if figure.energy_j is None else figure_format.figure(figure)
