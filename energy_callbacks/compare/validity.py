"""Checks what limits the conclusions of a comparison or forbids them."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Final

from energy_callbacks.compare.model import Caveat, Effect
from energy_callbacks.compare.quantities import BY_NAME
from energy_callbacks.core import formatting
from energy_callbacks.report.model.schema import EnergyReport

# Judgements of ours: what lies above these is larger than the effects that people look for.
_COVERAGE: Final = 0.95
_THROTTLED: Final = 0.02
_WARMER_C: Final = 10.0
_UNLIKE_WORK, _OTHER_WORK = 0.01, 0.05

_ENERGY = tuple(name for name, one in BY_NAME.items() if one.is_energy)
_WHOLE = tuple(name for name, one in BY_NAME.items() if one.is_whole)
_NOT_MEMORY = tuple(name for name in BY_NAME if "memory" not in name)
_NOT_HOST_MEMORY = tuple(name for name in BY_NAME if name != "host_memory_bytes")

Groups = Mapping[str, Sequence[EnergyReport]]


def caveats(groups: Groups) -> Iterator[Caveat]:
    """All there are, group by group."""
    first = next(iter(groups))
    for name, reports in groups.items():
        yield from _of_group(name, reports)
    for name, reports in groups.items():
        if name != first:
            yield from _against(first, groups[first], name, reports)


def _of_group(name: str, reports: Sequence[EnergyReport]) -> Iterator[Caveat]:
    ended = [one for one in reports if one.run.status != "finished"]
    if ended:
        statuses = ", ".join(sorted({one.run.status for one in ended}))
        yield Caveat(
            code="unfinished",
            group=name,
            message=f"{_count(ended, reports)} of {name} did not come to their end ({statuses}): "
            "what whole runs took cannot be compared.",
            quantities=_WHOLE,
            is_fatal=True,
        )
    unseen = [one for one in reports if one.energy.total.coverage < _COVERAGE]
    if unseen:
        least = min(one.energy.total.coverage for one in unseen)
        yield Caveat(
            code="low_coverage",
            group=name,
            message=f"Sensors saw only {formatting.percent(least)} of a run of {name}: "
            "its energy is not that of the whole.",
            quantities=_ENERGY,
            is_fatal=True,
        )
    shared = sorted({note for one in reports for note in _others(one)})
    if shared:
        yield Caveat(
            code="shared_card",
            group=name,
            message=f"Other programs were on a card of {name} ({shared[0]}): "
            "what they used is in the figures.",
            quantities=_NOT_HOST_MEMORY,
            is_fatal=True,
        )


def _against(
    first: str, old: Sequence[EnergyReport], name: str, new: Sequence[EnergyReport]
) -> Iterator[Caveat]:
    throttled = [_throttled(old), _throttled(new)]
    if None not in throttled and abs(throttled[1] - throttled[0]) > _THROTTLED:  # type: ignore[operator]
        told = [formatting.percent(share) for share in throttled]
        yield Caveat(
            code="throttled",
            group=name,
            message=f"Clocks were held down for {told[1]} of the time in {name} and for {told[0]} "
            f"in {first}: where that came from heat and not from the work itself, repeat with a "
            "longer pause before each run.",
        )
    starts = [_start_c(old), _start_c(new)]
    if None not in starts and abs(starts[1] - starts[0]) > _WARMER_C:  # type: ignore[operator]
        told = [formatting.celsius(one) for one in starts if one is not None]
        yield Caveat(
            code="unlike_temperature",
            group=name,
            message=f"Cards of {first} began at {told[0]}, those of {name} at {told[1]}: a warm "
            "card takes more power for the same work. Repeat in turn, with a pause before each.",
            quantities=_NOT_MEMORY,
            is_fatal=True,
        )
    for unit in ("samples", "steps"):
        work = [_work(old, unit), _work(new, unit)]
        if None in work:
            continue
        unlike = abs(work[1] / work[0] - 1.0)  # type: ignore[operator]
        if unlike > _UNLIKE_WORK:
            told = [formatting.grouped(one) for one in work if one is not None]
            yield Caveat(
                code="unlike_work",
                group=name,
                message=f"Runs of {first} made {told[0]} {unit}, those of {name} {told[1]}: "
                "energy and time of whole runs are not of the same work.",
                quantities=_WHOLE,
                is_fatal=unlike > _OTHER_WORK,
            )
        break
    names = [_cards(old), _cards(new)]
    if names[0] != names[1]:
        told = [", ".join(sorted(one)) or "no card" for one in names]
        yield Caveat(
            code="unlike_cards",
            group=name,
            message=f"{first} ran on {told[0]}, {name} on {told[1]}.",
        )


def _count(some: Sequence[object], whole: Sequence[object]) -> str:
    return f"{len(some)} of {len(whole)} runs" if len(whole) > 1 else "The run"


def _others(report: EnergyReport) -> Iterator[str]:
    for device in report.devices:
        for note in device.notes:
            if note.startswith("shared card"):
                yield note


def _throttled(reports: Sequence[EnergyReport]) -> float | None:
    """Mean share of the time in which the clocks of the card that suffered most were held down."""
    shares = []
    for report in reports:
        told = [one.throttled_s for one in report.devices if one.throttled_s is not None]
        if told and report.run.duration_s > 0.0:
            shares.append(max(told) / report.run.duration_s)
    return fmean(shares) if shares else None


def _start_c(reports: Sequence[EnergyReport]) -> float | None:
    """Mean temperature of the warmest card at the start of the runs."""
    found = []
    for report in reports:
        first = [
            next((one for one in curve.temperature_c if one is not None), None)
            for curve in report.series
        ]
        known = [one for one in first if one is not None]
        if known:
            found.append(max(known))
    return fmean(found) if found else None


def _work(reports: Sequence[EnergyReport], unit: str) -> float | None:
    done = [getattr(report.throughput, unit) for report in reports]
    return fmean(done) if all(done) else None


def _cards(reports: Sequence[EnergyReport]) -> frozenset[str]:
    return frozenset(
        device.name for report in reports for device in report.devices if device.kind == "gpu"
    )


def forbids(caveat: Caveat, effect: Effect, first: str) -> bool:
    """Whether it keeps an effect from being decided: a fault of the first group, or of this one."""
    is_of_it = caveat.is_fatal and caveat.group in (None, first, effect.group)
    return is_of_it and (not caveat.quantities or effect.quantity in caveat.quantities)
