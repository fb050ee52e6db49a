"""Builds a ``Comparison`` from reports."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal, NamedTuple, TypeVar

import numpy as np

from energy_callbacks.compare import answers, statistics, target, validity
from energy_callbacks.compare.blocks import blocks
from energy_callbacks.compare.model import (
    Basis,
    Caveat,
    Comparison,
    Effect,
    Group,
    Quality,
    QualityVerdict,
    RunCurve,
    RunValues,
    Verdict,
)
from energy_callbacks.compare.quantities import (
    ANSWERS,
    ENERGY_TO_TARGET,
    QUANTITIES,
    TIME_TO_TARGET,
    unlike_sensors,
    values,
)
from energy_callbacks.compare.statistics import ALPHA, RatioInterval
from energy_callbacks.compare.target import Goal
from energy_callbacks.report.charts.bands import bands
from energy_callbacks.report.model.metrics import Direction
from energy_callbacks.report.model.schema import EnergyReport
from energy_callbacks.version import __version__

MARGIN: Final = 0.01
"""A metric that is worse by less than this share is still as good; ours, ``margin=`` changes it."""
_CURVE_POINTS: Final = 120
_OF_WORK: Final = ("j_per_sample", "j_per_token", "j_per_step")

Pairing = Literal["auto"] | bool
_T = TypeVar("_T")


class Repeat(NamedTuple):
    """One run: where it came from, and its report."""

    source: str
    report: EnergyReport


class _Side(NamedTuple):
    """One group with its figures."""

    group: Group
    reports: Sequence[EnergyReport]


def build(
    groups: Mapping[str, Sequence[Repeat]],
    *,
    metric: str | None,
    goal: Direction | None,
    to_reach: float | None,
    paired: Pairing,
    margin: float,
) -> Comparison:
    """Compare each group with the first; the arguments are those of ``compare``."""
    reports = [repeat.report for repeats in groups.values() for repeat in repeats]
    judged = target.goal(reports, metric, goal, to_reach)
    keeps_order = paired is True
    sides = [_side(name, repeats, judged, keeps_order) for name, repeats in groups.items()]
    told = list(validity.caveats({side.group.name: side.reports for side in sides}))
    told += [*_unreached(sides, judged), *_known_by_some(sides)]
    effects = _with_verdicts(
        [effect for side in sides[1:] for effect in _effects(sides[0], side, paired)],
        told,
        sides[0].group.name,
    )
    qualities = [
        _allowed(q, told, sides[0].group.name)
        for side in sides[1:]
        if (q := _quality(sides[0], side, judged, paired, margin))
    ]
    comparison = Comparison(
        tool_version=__version__,
        metric=None if judged is None else judged.metric,
        direction=None if judged is None else judged.direction,
        target=None if judged is None else judged.target,
        primary=_primary(effects, [side.group.name for side in sides[1:]]),
        groups=tuple(side.group for side in sides),
        effects=tuple(effects),
        qualities=tuple(qualities),
        caveats=tuple(told),
        answers=(),
    )
    return replace(comparison, answers=tuple(answers.answers(comparison)))


def _primary(effects: Sequence[Effect], groups: Sequence[str]) -> str | None:
    """The first energy that all groups know, with intervals if there is one."""
    for has_interval in (True, False):
        for name in ANSWERS:
            found = {
                e.group for e in effects if e.quantity == name and (e.basis or not has_interval)
            }
            if found.issuperset(groups):
                return name
    return next((effect.quantity for effect in effects), None)


def _side(name: str, repeats: Sequence[Repeat], judged: Goal | None, keeps_order: bool) -> _Side:
    in_time = sorted(repeats, key=lambda repeat: repeat.report.run.started_unix_s)
    ordered = list(repeats) if keeps_order else in_time
    runs = [_run_values(repeat, judged) for repeat in ordered]
    shared = set.intersection(*(set(run.values) for run in runs))
    means = {
        one.name: float(np.exp(np.mean([np.log(run.values[one.name]) for run in runs])))
        for one in QUANTITIES
        if one.name in shared
    }
    bests = [run.best_metric for run in runs]
    known = [best for best in bests if best is not None]
    group = Group(
        name=name,
        runs=tuple(runs),
        curves=tuple(_curve(repeat.report, judged) for repeat in ordered),
        means=means,
        metric_mean=float(np.mean(known)) if len(known) == len(bests) else None,
    )
    return _Side(group, [repeat.report for repeat in ordered])


def _run_values(repeat: Repeat, judged: Goal | None) -> RunValues:
    report = repeat.report
    found = values(report)
    metric = None if judged is None else target.find(report, judged.metric)
    best = None
    if judged is not None and metric is not None:
        best = target.best(metric, judged)
        when = target.reached(metric, judged)
        for name, value in zip((ENERGY_TO_TARGET, TIME_TO_TARGET), when or (), strict=False):
            if value:
                found[name] = value
    return RunValues(
        run_id=report.run.run_id,
        name=report.run.name,
        source=repeat.source,
        started_unix_s=report.run.started_unix_s,
        values=found,
        best_metric=best,
    )


def _unreached(sides: Sequence[_Side], judged: Goal | None) -> Iterator[Caveat]:
    if judged is None:
        return
    for side in sides:
        found = [target.find(report, judged.metric) for report in side.reports]
        without = sum(metric is None for metric in found)
        short = sum(m is not None and target.reached(m, judged) is None for m in found)
        wanted = f"{judged.metric} {judged.target:g}"
        for count, what in (
            (without, f"have no {judged.metric}"),
            (short, f"never reached {wanted}"),
        ):
            if count:
                yield Caveat(
                    code="target_not_reached",
                    group=side.group.name,
                    message=f"{count} of {len(found)} runs of {side.group.name} {what}: "
                    "energy and time to it are not known.",
                )


def _known_by_some(sides: Sequence[_Side]) -> Iterator[Caveat]:
    """A row that is missing because one run does not know it."""
    of_target = (ENERGY_TO_TARGET, TIME_TO_TARGET)
    for side in sides:
        known = set().union(*(run.values for run in side.group.runs))
        for one in QUANTITIES:
            if one.name in known and one.name not in (*side.group.means, *of_target):
                lacking = sum(one.name not in run.values for run in side.group.runs)
                yield Caveat(
                    code="not_known_by_all",
                    group=side.group.name,
                    message=f"{lacking} of {len(side.group.runs)} runs of {side.group.name} do not "
                    f"know: {one.title.lower()}. It is left out.",
                )


def _effects(old: _Side, new: _Side, paired: Pairing) -> Iterator[Effect]:
    in_pairs = _are_paired(old.group, new.group, paired)
    of_work = [name for name in _OF_WORK if name in old.group.means and name in new.group.means]
    for quantity in QUANTITIES:
        means = [side.group.means.get(quantity.name) for side in (old, new)]
        # A sample is more informative than the steps that it is part of.
        if means[0] is None or means[1] is None or quantity.name in of_work[1:]:
            continue
        found, basis = _interval(old, new, quantity.name, in_pairs)
        ratio = means[1] / means[0]
        off = (0.0, 0.0)
        if quantity.is_energy:
            off = unlike_sensors(old.reports, new.reports, quantity.scope)
        # That of blocks is of a part of the run: its width counts, around the whole's ratio.
        factor = 1.0 if found is None else ratio / found.value
        yield Effect(
            group=new.group.name,
            quantity=quantity.name,
            ratio=ratio,
            low=None if found is None else factor * found.low * (1.0 - off[1]) / (1.0 + off[0]),
            high=None if found is None else factor * found.high * (1.0 + off[1]) / (1.0 - off[0]),
            systematic=sum(off),
            p=None if found is None else found.p,
            p_holm=None,
            detectable=None if found is None else found.detectable,
            basis=basis,
            verdict="not resolved",
        )


def _interval(
    old: _Side, new: _Side, quantity: str, in_pairs: bool
) -> tuple[RatioInterval | None, Basis | None]:
    before, after = ([run.values[quantity] for run in s.group.runs] for s in (old, new))
    basis: Basis = "pairs" if in_pairs else "runs"
    ratio = statistics.ratio_of_pairs if in_pairs else statistics.ratio_of_runs
    found = ratio(before, after)
    if found is None and len(before) == len(after) == 1:
        in_blocks = [blocks(side.reports[0], quantity) for side in (old, new)]
        if in_blocks[0] is not None and in_blocks[1] is not None:
            found, basis = statistics.ratio_of_blocks(in_blocks[0], in_blocks[1]), "blocks"
    return (found, basis) if found is not None else (None, None)


def _are_paired(old: Group, new: Group, paired: Pairing) -> bool:
    """As asked; else whether runs were made in turn, each with a partner of about the same time."""
    if paired != "auto":
        return paired
    if len(old.runs) != len(new.runs) or len(old.runs) < 2:
        return False
    starts = [(run.started_unix_s, side) for side, one in enumerate((old, new)) for run in one.runs]
    order = [side for _, side in sorted(starts)]
    return all(order[i] != order[i + 1] for i in range(0, len(order), 2))


def _with_verdicts(
    effects: Sequence[Effect], caveats: Iterable[Caveat], first: str
) -> list[Effect]:
    """All questions together: Holm over those that have an interval."""
    asked = [effect.p for effect in effects if effect.p is not None]
    adjusted = iter(statistics.holm(asked))
    told = list(caveats)
    found = []
    for effect in effects:
        p_holm = None if effect.p is None else next(adjusted)
        decided = replace(effect, p_holm=p_holm)
        if not any(validity.forbids(one, effect, first) for one in told):
            decided = replace(decided, verdict=_verdict(decided))
        found.append(decided)
    return found


def _allowed(quality: Quality, caveats: Iterable[Caveat], first: str) -> Quality:
    """Runs that did not come to their end say nothing of how good they would have been."""
    ended = {one.group for one in caveats if one.code == "unfinished"}
    is_spoilt = bool(ended.intersection((first, quality.group)))
    return replace(quality, verdict="not resolved") if is_spoilt else quality


def _verdict(effect: Effect) -> Verdict:
    if effect.p_holm is None or effect.low is None or effect.high is None:
        return "not resolved"
    if effect.p_holm >= ALPHA or effect.low <= 1.0 <= effect.high:
        return "not resolved"
    return "lower" if effect.high < 1.0 else "higher"


def _quality(
    old: _Side, new: _Side, judged: Goal | None, paired: Pairing, margin: float
) -> Quality | None:
    """Whether the metric is as good: not worse by more than the margin, beyond chance."""
    if judged is None or old.group.metric_mean is None or new.group.metric_mean is None:
        return None
    before, after = (
        [judged.sign * run.best_metric for run in side.group.runs if run.best_metric is not None]
        for side in (old, new)
    )
    in_pairs = _are_paired(old.group, new.group, paired)
    found = statistics.difference(before, after, in_pairs=in_pairs)
    still = margin * abs(old.group.metric_mean)
    difference = float(np.mean(after) - np.mean(before))
    verdict: QualityVerdict = "not resolved"
    if found is not None and found[0] >= -still:
        verdict = "as good"
    elif found is not None and found[1] < 0.0 and difference < -still:
        verdict = "worse"
    return Quality(
        group=new.group.name,
        difference=difference,
        low=None if found is None else found[0],
        high=None if found is None else found[1],
        margin=still,
        verdict=verdict,
    )


def _curve(report: EnergyReport, judged: Goal | None) -> RunCurve:
    power = bands(report, _CURVE_POINTS)
    edges_s = power[0].edges_s if power else ()
    done = report.progress
    metric = None if judged is None else target.find(report, judged.metric)
    known = (
        []
        if metric is None
        else [(e, v) for e, v in zip(metric.energy_j, metric.value, strict=True) if e is not None]
    )
    return RunCurve(
        t_s=_rounded(edges_s[1:]),
        power_w=_rounded([sum(one) for one in zip(*(b.power_w for b in power), strict=True)]),
        memory_bytes=_memory(report, edges_s),
        step=_thinned(() if done is None else done.step),
        step_energy_j=_thinned(() if done is None else done.energy_j),
        metric_energy_j=_rounded([e for e, _ in known]),
        metric=tuple(v for _, v in known),
    )


def _memory(report: EnergyReport, edges_s: Sequence[float]) -> tuple[float | None, ...]:
    """Of the card that uses most, else of the process: highest between the edges."""
    kinds = {(one.host, one.key): one.kind for one in report.devices}
    curves = [one for one in report.series if any(one.memory_bytes)]
    cards = [one for one in curves if kinds.get((one.host, one.key)) == "gpu"] or curves
    if not cards or not edges_s:
        return ()
    curve = max(cards, key=lambda one: max(m or 0.0 for m in one.memory_bytes))
    places = np.searchsorted(edges_s[1:], curve.t_s)
    found: list[float | None] = [None] * (len(edges_s) - 1)
    for place, size in zip(places.tolist(), curve.memory_bytes, strict=True):
        if size is not None and place < len(found):
            found[place] = max(found[place] or 0.0, size)
    return tuple(found)


def _thinned(points: Sequence[_T]) -> tuple[_T, ...]:
    kept = np.linspace(0, len(points) - 1, min(len(points), _CURVE_POINTS)).round().astype(int)
    return tuple(points[i] for i in np.unique(kept).tolist())


def _rounded(values: Sequence[float]) -> tuple[float, ...]:
    return tuple(float(f"{value:.6g}") for value in values)
