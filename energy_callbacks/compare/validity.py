"""Finds the caveats of a comparison: conditions that limit its conclusions or forbid them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Final

from energy_callbacks.compare.model import Caveat, Effect
from energy_callbacks.compare.quantities import BY_NAME, HOST_MEMORY
from energy_callbacks.core import formatting
from energy_callbacks.report.model.figure_format import has_machine
from energy_callbacks.report.model.schema import EnergyReport

# Thresholds of the caveats. They are our choice: beyond a threshold, the error can be larger than
# the effects that users look for.
_COVERAGE: Final = 0.95  # minimum share of a run's time that readings cover
_THROTTLED: Final = 0.02  # maximum difference of the shares of time with throttled clocks
_WARMER_C: Final = 10.0  # maximum difference of the temperatures at the start, degrees Celsius
# Maximum share of the pairs of runs, one of each group, in which the same group began first. It is
# 0.5 for the order A B B A, 0.75 for A B A B, and 1 for A A B B.
_SAME_ORDER: Final = 0.75
# Relative difference of the work above which there is a caveat, and above which this caveat is
# fatal. A fatal caveat forbids a verdict (see ``forbids``).
_UNLIKE_WORK, _OTHER_WORK = 0.01, 0.05

# How notes of a GPU begin that say what its sensor measures besides or instead of the whole card;
# families of sensors write them (``sensing/sources/sysfs``).
_PARTS = ("this rail also supplies", "power includes", "energy of the GPU package")

# Names of the quantities that certain caveats affect.
_ENERGY = tuple(name for name, one in BY_NAME.items() if one.is_energy)
_TOTAL_ENERGY = tuple(name for name in _ENERGY if BY_NAME[name].scope == "total")
_GPU_ENERGY = tuple(name for name in _ENERGY if BY_NAME[name].scope == "gpu")
_WHOLE = tuple(name for name, one in BY_NAME.items() if one.is_whole)
_NOT_MEMORY = tuple(name for name in BY_NAME if "memory" not in name)
_NOT_HOST_MEMORY = tuple(name for name in BY_NAME if name not in HOST_MEMORY)

Reports = Sequence[EnergyReport]


def caveats(groups: Mapping[str, Reports]) -> Iterator[Caveat]:
    """Yield the caveats of single groups, then those of differences from the first group."""
    (first, old), *others = groups.items()
    for name, reports in groups.items():
        yield from _of_group(name, reports)
    for name, new in others:
        yield from _of_order(first, old, name, new)
        yield from _of_throttling(first, old, name, new)
        yield from _of_temperature(first, old, name, new)
        yield from _of_work(first, old, name, new)
        yield from _of_cards(first, old, name, new)
        yield from _of_parts(first, old, name, new)
        yield from _of_totals(first, old, name, new)


def some_runs(count: int, total: int, name: str) -> tuple[str, str]:
    """Return some of all runs of a group in words, and the pronoun for what they have.

    >>> some_runs(1, 1, "new"), some_runs(2, 5, "new")
    (('The run of new', 'its'), ('2 of 5 runs of new', 'their'))
    """
    who = "The run" if total == 1 else f"{count} of {total} runs"
    return f"{who} of {name}", "its" if count == 1 else "their"


def _of_group(name: str, reports: Reports) -> Iterator[Caveat]:
    fatal = partial(Caveat, group=name, is_fatal=True)
    unfinished = [one for one in reports if one.run.status != "finished"]
    if unfinished:
        statuses = ", ".join(sorted({one.run.status for one in unfinished}))
        who, whose = some_runs(len(unfinished), len(reports), name)
        yield fatal(
            code="unfinished",
            message=f"{who} did not finish ({statuses}): {whose} energy and time are not those of "
            "a whole run and cannot be compared.",
            quantities=_WHOLE,
        )
    least = min(one.energy.total.coverage for one in reports)
    if least < _COVERAGE:
        yield fatal(
            code="low_coverage",
            message=f"Sensors covered only {formatting.percent(least)} of a run of {name}: its "
            "energy is not that of the whole run.",
            quantities=_ENERGY,
        )
    notes = {note for one in reports for device in one.devices for note in device.notes}
    shared = sorted(note for note in notes if note.startswith("shared card"))
    if shared:
        yield fatal(
            code="shared_card",
            message=f"Other programs used a card of {name} ({shared[0]}): the figures include "
            "their energy.",
            quantities=_NOT_HOST_MEMORY,
        )


def _of_order(first: str, old: Reports, name: str, new: Reports) -> Iterator[Caveat]:
    """Yield a caveat if one group began before the other; single runs have no order to choose."""
    if min(len(old), len(new)) < 2:
        return
    share = fmean(a.run.started_unix_s < b.run.started_unix_s for a in old for b in new)
    if max(share, 1.0 - share) > _SAME_ORDER:
        yield Caveat(
            code="not_interleaved",
            group=name,
            message=f"Runs of {first} and {name} did not alternate: slow changes, such as the "
            "room temperature, look like an effect. Repeat the runs in turn (A B A B).",
        )


def _of_throttling(first: str, old: Reports, name: str, new: Reports) -> Iterator[Caveat]:
    shares = _known(_throttled, old, new)
    if shares is not None and abs(shares[1] - shares[0]) > _THROTTLED:
        before, after = map(formatting.percent, shares)
        yield Caveat(
            code="throttled",
            group=name,
            message=f"GPUs were throttled for {after} of the time in {name} and for {before} in "
            f"{first}: if heat was the cause and not the work itself, repeat with a "
            "longer pause before each run.",
        )


def _of_temperature(first: str, old: Reports, name: str, new: Reports) -> Iterator[Caveat]:
    starts_c = _known(_start_c, old, new)
    # Sensors of other GPUs are at other places of the chip.
    if (
        starts_c is not None
        and _cards(old) == _cards(new)
        and abs(starts_c[1] - starts_c[0]) > _WARMER_C
    ):
        before, after = map(formatting.celsius, starts_c)
        yield Caveat(
            code="unlike_temperature",
            group=name,
            message=f"The cards of {first} started at {before}, those of {name} at {after}: a "
            "warm card draws more power for the same work. Repeat the runs in turn, "
            "with a pause before each.",
            quantities=_NOT_MEMORY,
            is_fatal=True,
        )


def _of_work(first: str, old: Reports, name: str, new: Reports) -> Iterator[Caveat]:
    """Yield a caveat if the groups' mean numbers of samples differ by more than ``_UNLIKE_WORK``.

    If samples are not known for one of the groups, numbers of steps are compared.
    """
    for unit in ("samples", "steps"):
        counts = _known(partial(_mean_count, unit), old, new)
        if counts is None:
            continue
        unlike = abs(counts[1] / counts[0] - 1.0)
        if unlike > _UNLIKE_WORK:
            before, after = map(formatting.grouped, counts)
            yield Caveat(
                code="unlike_work",
                group=name,
                message=f"A run of {first} executed {before} {unit}, and a run of {name} {after}: "
                "the energies and times of whole runs are not for the same work.",
                quantities=_WHOLE,
                is_fatal=unlike > _OTHER_WORK,
            )
        break


def _of_totals(first: str, old: Reports, name: str, new: Reports) -> Iterator[Caveat]:
    """Yield a caveat if a sensor of the whole machine measured only some of the runs."""
    if len({has_machine(one.devices) for one in (*old, *new)}) > 1:
        yield Caveat(
            code="unlike_total",
            group=name,
            message=f"A sensor of the whole machine measured only some of the runs of {first} and "
            f"{name}: the totals of the others have only GPUs, CPU and RAM. Compare GPU energy.",
            quantities=_TOTAL_ENERGY,
            is_fatal=True,
        )


def _of_cards(first: str, old: Reports, name: str, new: Reports) -> Iterator[Caveat]:
    before, after = _cards(old), _cards(new)
    if before != after:
        message = f"{first} ran on {before or 'no card'}, {name} on {after or 'no card'}."
        yield Caveat(code="unlike_cards", group=name, message=message)


def _cards(reports: Reports) -> str:
    """Return the names of all GPUs."""
    return ", ".join(sorted({d.name for one in reports for d in one.devices if d.kind == "gpu"}))


def _of_parts(first: str, old: Reports, name: str, new: Reports) -> Iterator[Caveat]:
    """Yield a caveat if the sensors of the groups' GPUs measure different parts of the machine."""
    sides = {side: ", ".join(_parts(reports)) for side, reports in ((first, old), (name, new))}
    if len(set(sides.values())) > 1:
        said = "; ".join(f"{side}: {parts}" for side, parts in sides.items() if parts)
        yield Caveat(
            code="unlike_sensors",
            group=name,
            message=f"The sensors of the GPUs of {first} and {name} do not measure the same parts "
            f"({said}). Compare the total energy.",
            quantities=_GPU_ENERGY,
            is_fatal=True,
        )


def _parts(reports: Reports) -> list[str]:
    """Return the notes that say what the sensors of GPUs measure, in order."""
    gpus = (one for report in reports for one in report.devices if one.scope == "gpu")
    return sorted({note for one in gpus for note in one.notes if note.startswith(_PARTS)})


def _known(
    value: Callable[[Reports], float | None], old: Reports, new: Reports
) -> tuple[float, float] | None:
    """Return the results of ``value`` for both groups; ``None`` if a result is ``None``."""
    before, after = value(old), value(new)
    return None if before is None or after is None else (before, after)


def _throttled(reports: Reports) -> float | None:
    """Return the mean share of time in which a run's most throttled device was throttled.

    Runs without a known share are left out; the result is ``None`` if no run is left.
    """
    shares = []
    for report in reports:
        known = [one.throttled_s for one in report.devices if one.throttled_s is not None]
        if known and report.run.duration_s > 0.0:
            shares.append(max(known) / report.run.duration_s)
    return fmean(shares) if shares else None


def _start_c(reports: Reports) -> float | None:
    """Return the mean temperature of the runs' warmest devices at the start, in degrees Celsius.

    Runs without known temperatures are left out; the result is ``None`` if no run is left.
    """
    warmest = []
    for report in reports:
        known = [[t_c for t_c in one.temperature_c if t_c is not None] for one in report.series]
        if any(known):
            warmest.append(max(temperatures_c[0] for temperatures_c in known if temperatures_c))
    return fmean(warmest) if warmest else None


def _mean_count(unit: str, reports: Reports) -> float | None:
    counts = [getattr(report.throughput, unit) for report in reports]
    return fmean(counts) if all(counts) else None


def forbids(caveat: Caveat, effect: Effect, first: str) -> bool:
    """Return whether a caveat forbids a verdict on an effect.

    A caveat forbids a verdict if it is fatal and both its group and its quantities fit the effect.
    Its group must be the effect's group, the first group, or ``None`` for all groups. Its
    quantities must contain the effect's quantity, or be empty for all quantities.

    Args:
        caveat: the caveat.
        effect: the effect.
        first: name of the first group.
    """
    is_of_it = caveat.is_fatal and caveat.group in (None, first, effect.group)
    return is_of_it and (not caveat.quantities or effect.quantity in caveat.quantities)
