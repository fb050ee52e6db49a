"""Builds a ``Comparison`` from reports."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import geometric_mean
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from energy_callbacks.compare import answers, statistics, target, validity
from energy_callbacks.compare.blocks import blocks
from energy_callbacks.compare.curves import run_curve
from energy_callbacks.compare.model import (
    Basis,
    Caveat,
    Comparison,
    Effect,
    Group,
    Quality,
    QualityVerdict,
    RunValues,
    Verdict,
)
from energy_callbacks.compare.quantities import (
    ANSWERS,
    ENERGY_TO_TARGET,
    QUANTITIES,
    TIME_TO_TARGET,
    compared,
    estimated_share,
    systematic_errors,
    values,
)
from energy_callbacks.compare.statistics import ALPHA, RatioInterval
from energy_callbacks.compare.target import Goal
from energy_callbacks.report.model.metrics import Metric
from energy_callbacks.report.model.schema import EnergyReport
from energy_callbacks.version import __version__

MARGIN: Final = 0.01
"""Default of ``margin`` in ``compare``: 1 % of the first group's mean metric."""

Pairing = Literal["auto"] | bool


class Repeat(NamedTuple):
    """One run of a group; ``source`` is the same as in ``RunValues``."""

    source: str
    report: EnergyReport


class _GroupReports(NamedTuple):
    """A group, and the reports of its runs in the order of ``group.runs``."""

    group: Group
    reports: Sequence[EnergyReport]


def build(
    groups: Mapping[str, Sequence[Repeat]],
    judged: Goal | None,
    *,
    paired: Pairing,
    margin: float,
) -> Comparison:
    """Compare each group with the first group.

    Args:
        groups: runs of each group, by name of the group.
        judged: the metric by which model quality is compared, with its target; ``None`` if no
            metric is compared.
        paired: as in ``compare``.
        margin: as in ``compare``.
    """
    first, *others = (
        _group_reports(name, repeats, judged, keeps_order=paired is True)
        for name, repeats in groups.items()
    )
    sides = (first, *others)
    caveats = [
        *validity.caveats({side.group.name: side.reports for side in sides}),
        *_unreached(sides, judged),
        *_known_by_some(sides),
    ]
    effects = [effect for side in others for effect in _effects(first, side, paired)]
    effects = _with_verdicts(effects, caveats, first.group.name)
    qualities = []
    if judged is not None:
        qualities = [_quality(first, side, judged, paired, margin) for side in others]
    comparison = Comparison(
        tool_version=__version__,
        metric=judged.metric if judged else None,
        direction=judged.direction if judged else None,
        target=judged.target if judged else None,
        primary=_primary(effects, [side.group.name for side in others]),
        groups=tuple(side.group for side in sides),
        effects=tuple(effects),
        qualities=tuple(quality for quality in qualities if quality is not None),
        caveats=tuple(caveats),
        answers=(),
    )
    return replace(comparison, answers=tuple(answers.answers(comparison)))


def _primary(effects: Sequence[Effect], groups: Sequence[str]) -> str | None:
    """Return the main quantity: the first in ``ANSWERS`` with an effect for all groups.

    Quantities whose effects all have an interval take precedence. If no quantity in ``ANSWERS`` has
    an effect for all groups, the result is the quantity of the first effect; ``None`` without
    effects.

    Args:
        effects: effects of all groups.
        groups: names of all groups except the first.
    """
    for has_interval in (True, False):
        for name in ANSWERS:
            known = {
                e.group for e in effects if e.quantity == name and (e.basis or not has_interval)
            }
            if known.issuperset(groups):
                return name
    return next((effect.quantity for effect in effects), None)


def _group_reports(
    name: str, repeats: Sequence[Repeat], judged: Goal | None, *, keeps_order: bool
) -> _GroupReports:
    in_time = sorted(repeats, key=lambda repeat: repeat.report.run.started_unix_s)
    ordered = repeats if keeps_order else in_time
    runs = [_run_values(repeat, judged) for repeat in ordered]
    means = {
        one.name: geometric_mean([run.values[one.name] for run in runs])
        for one in QUANTITIES
        if all(one.name in run.values for run in runs)
    }
    bests = [run.best_metric for run in runs if run.best_metric is not None]
    group = Group(
        name=name,
        runs=tuple(runs),
        curves=tuple(run_curve(one.report, _metric(one.report, judged)) for one in ordered),
        means=means,
        metric_mean=float(np.mean(bests)) if len(bests) == len(runs) else None,
    )
    return _GroupReports(group, [repeat.report for repeat in ordered])


def _metric(report: EnergyReport, judged: Goal | None) -> Metric | None:
    return None if judged is None else target.find(report, judged.metric)


def _run_values(repeat: Repeat, judged: Goal | None) -> RunValues:
    run = repeat.report.run
    known = values(repeat.report)
    metric = _metric(repeat.report, judged)
    best = None
    if judged is not None and metric is not None:
        best = target.best(metric, judged.direction)
        to_target = target.reached(metric, judged) or ()
        for name, value in zip((ENERGY_TO_TARGET, TIME_TO_TARGET), to_target, strict=False):
            if value:
                known[name] = value
    return RunValues(
        run_id=run.run_id,
        name=run.name,
        source=repeat.source,
        started_unix_s=run.started_unix_s,
        values=known,
        best_metric=best,
    )


def _unreached(sides: Sequence[_GroupReports], judged: Goal | None) -> Iterator[Caveat]:
    """Yield a caveat for each group with runs that lack the metric, or never reach the target.

    A group with both kinds of runs gets two caveats.
    """
    if judged is None:
        return
    for side in sides:
        metrics = [_metric(report, judged) for report in side.reports]
        without = metrics.count(None)
        short = sum(m is not None and target.reached(m, judged) is None for m in metrics)
        for count, what in (
            (without, f"never recorded {judged.metric}"),
            (short, f"never reached {judged.metric} {judged.target:g}"),
        ):
            if count:
                who, whose = validity.some_runs(count, len(metrics), side.group.name)
                yield Caveat(
                    code="target_not_reached",
                    group=side.group.name,
                    message=f"{who} {what}: {whose} energy and time to the target are not known.",
                )


def _known_by_some(sides: Sequence[_GroupReports]) -> Iterator[Caveat]:
    """Yield a caveat for each quantity that is known for only some runs of a group.

    Energy and time to the target are excluded: ``_unreached`` reports them.
    """
    for group, _ in sides:
        for one in QUANTITIES:
            lacking = sum(one.name not in run.values for run in group.runs)
            is_of_target = one.name in (ENERGY_TO_TARGET, TIME_TO_TARGET)
            if 0 < lacking < len(group.runs) and not is_of_target:
                yield Caveat(
                    code="not_known_by_all",
                    group=group.name,
                    message=f"In {lacking} of {len(group.runs)} runs of {group.name}, this "
                    f"quantity is not known: {one.in_sentence}. It is left out.",
                )


def _effects(old: _GroupReports, new: _GroupReports, paired: Pairing) -> Iterator[Effect]:
    in_pairs = _are_paired(old.group, new.group, paired)
    for quantity in compared(old.group.means, new.group.means):
        ratio = new.group.means[quantity.name] / old.group.means[quantity.name]
        off_old, off_new, estimated_old, estimated_new = 0.0, 0.0, 0.0, 0.0
        if quantity.is_energy:
            off_old, off_new = systematic_errors(old.reports, new.reports, quantity.scope)
            estimated_old = estimated_share(old.reports, quantity.scope)
            estimated_new = estimated_share(new.reports, quantity.scope)
        interval, basis = _interval(old, new, quantity.name, in_pairs)
        known: dict[str, Any] = dict.fromkeys(("low", "high", "p", "detectable"))
        if interval is not None:
            # ``ratio`` is the ratio of the values of whole runs. With basis "blocks", the interval
            # is computed from time blocks of one run per group (``blocks.py``). Blocks leave out
            # parts of a run, such as its start, so the value of their interval differs from
            # ``ratio``. The factor scales the interval to ``ratio``. It is 1 with basis "runs" or
            # "pairs".
            factor = ratio / interval.value
            known = {
                "low": factor * interval.low * (1.0 - off_new) / (1.0 + off_old),
                "high": factor * interval.high * (1.0 + off_new) / (1.0 - off_old),
                "p": interval.p,
                "detectable": interval.detectable,
            }
        yield Effect(
            group=new.group.name,
            quantity=quantity.name,
            ratio=ratio,
            systematic=off_old + off_new,
            modelled=ratio * estimated_new - estimated_old,
            p_holm=None,
            basis=basis,
            verdict="not measured" if 1.0 in (estimated_old, estimated_new) else "not resolved",
            **known,
        )


def _interval(
    old: _GroupReports, new: _GroupReports, quantity: str, in_pairs: bool
) -> tuple[RatioInterval | None, Basis | None]:
    before, after = ([run.values[quantity] for run in s.group.runs] for s in (old, new))
    basis: Basis = "pairs" if in_pairs else "runs"
    interval = statistics.ratio_of_runs(before, after, in_pairs=in_pairs)
    if interval is None and len(before) == len(after) == 1:
        old_blocks, new_blocks = (blocks(side.reports[0], quantity) for side in (old, new))
        if old_blocks is not None and new_blocks is not None:
            interval, basis = statistics.ratio_of_blocks(old_blocks, new_blocks), "blocks"
    return (interval, basis) if interval is not None else (None, None)


def _are_paired(old: Group, new: Group, paired: Pairing) -> bool:
    """Return ``paired``; for ``"auto"``, whether the groups ran alternately (ABAB or ABBA)."""
    if paired != "auto":
        return paired
    if len(old.runs) != len(new.runs) or len(old.runs) < 2:
        return False
    starts = [(run.started_unix_s, side) for side, one in enumerate((old, new)) for run in one.runs]
    order = [side for _, side in sorted(starts)]
    return all(order[i] != order[i + 1] for i in range(0, len(order), 2))


def _with_verdicts(
    effects: Sequence[Effect], caveats: Sequence[Caveat], first: str
) -> list[Effect]:
    """Adjust the p-values for multiple comparisons (Holm), and return effects with verdicts."""
    adjusted = iter(statistics.holm([e.p for e in effects if e.p is not None]))
    decided = []
    for effect in effects:
        adjusted_effect = replace(effect, p_holm=None if effect.p is None else next(adjusted))
        is_forbidden = any(validity.forbids(one, effect, first) for one in caveats)
        if not is_forbidden and effect.verdict != "not measured":
            adjusted_effect = replace(adjusted_effect, verdict=_verdict(adjusted_effect))
        decided.append(adjusted_effect)
    return decided


def _verdict(effect: Effect) -> Verdict:
    if effect.p_holm is None or effect.low is None or effect.high is None:
        return "not resolved"
    if effect.p_holm >= ALPHA or effect.low <= 1.0 <= effect.high:
        return "not resolved"
    # The part of the change that models have estimated is no evidence for it.
    if effect.high < 1.0:
        return "lower" if effect.high - min(effect.modelled, 0.0) < 1.0 else "not measured"
    return "higher" if effect.low - max(effect.modelled, 0.0) > 1.0 else "not measured"


def _quality(
    old: _GroupReports, new: _GroupReports, judged: Goal, paired: Pairing, margin: float
) -> Quality | None:
    """Compare the metric of two groups; return ``None`` unless all runs have the metric.

    The difference is positive if the new group is better. The tolerance is ``margin`` times the
    absolute value of the old group's mean metric. The verdict is ``as good`` if the lower end of
    the 95 % interval of the difference is at least ``-tolerance``. The verdict is ``worse`` if the
    upper end is below 0 and the difference is below ``-tolerance``. Otherwise, or if a run has not
    finished, the verdict is ``not resolved``.
    """
    if old.group.metric_mean is None or new.group.metric_mean is None:
        return None
    before, after = (
        [judged.sign * run.best_metric for run in side.group.runs if run.best_metric is not None]
        for side in (old, new)
    )
    in_pairs = _are_paired(old.group, new.group, paired)
    interval = statistics.difference(before, after, in_pairs=in_pairs)
    tolerance = margin * abs(old.group.metric_mean)
    difference = float(np.mean(after) - np.mean(before))
    # The metric of an unfinished run could still have improved.
    have_ended = all(one.run.status == "finished" for one in (*old.reports, *new.reports))
    verdict: QualityVerdict = "not resolved"
    if interval is not None and have_ended:
        if interval[0] >= -tolerance:
            verdict = "as good"
        elif interval[1] < 0.0 and difference < -tolerance:
            verdict = "worse"
    low, high = interval or (None, None)
    return Quality(
        group=new.group.name,
        difference=difference,
        low=low,
        high=high,
        margin=tolerance,
        verdict=verdict,
    )
