"""Partitions among which a controller chooses, with their predicted power at every level."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from energy_callbacks.inference.control.levels import Level
from energy_callbacks.inference.control.protocols import Tenants
from energy_callbacks.inference.planner import enumeration
from energy_callbacks.inference.planner.judge import Judged, judge
from energy_callbacks.inference.planner.plan import Plan, Z
from energy_callbacks.inference.planner.problem import GpuSetting, Problem
from energy_callbacks.inference.planner.search import plan
from energy_callbacks.inference.protocols import PredictionModel
from energy_callbacks.inference.records import Configuration, Interval

Array = NDArray[np.float64]
# Levels at which the predictor is evaluated; between them, logarithms are interpolated. Ten
# clocks are about a tenth apart, and power is a power of the clock.
_ANCHORS: Final = 10
# Clocks and limits among which several models are planned, and parts of the highest power.
_SETTINGS: Final = 4
# Change of the throughput with the power, both as logarithms: 0.49 to 0.59 over 1.13 to 1.26 in the
# published fits of an A100.
_ELASTICITY: Final = 0.45
# Idle power is known to a factor of two without any measurement.
_MOST_IDLE: Final = 0.4
_PARTS: Final = (1.0, 0.85, 0.7, 0.6, 0.5, 0.4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Partitions and levels with their predictions.

    Attributes:
        partitions: the tenants of each.
        processes: (partitions,) equal for partitions that differ only in batches.
        features: (partitions, 3) places whose distance says how different partitions are.
        levels: the levels, in ascending order of power.
        powers_w: (partitions, levels) mean power, W.
        rates: (partitions, levels) logarithm of the weighted throughput in samples per second; very
            small where a limit other than the cap is exceeded.
        power_errors: (partitions,) relative standard deviation of the power of the work.
        errors: (partitions,) standard deviation of the logarithm of the throughput under a cap, to
            which the errors of throughput and power contribute.
        idle_w: power of tenants that wait, W.
        idle_error: its relative standard deviation.
    """

    partitions: tuple[Tenants, ...]
    processes: NDArray[np.int64]
    features: Array
    levels: tuple[Level, ...]
    powers_w: Array
    rates: Array
    power_errors: Array
    errors: Array
    idle_w: float
    idle_error: float


def candidates(
    problem: Problem,
    model: PredictionModel,
    levels: Sequence[Level],
    partitions: Sequence[Tenants],
) -> Candidates:
    """Predict partitions at all levels.

    Args:
        problem: limits other than the cap, and weights.
        model: the predictor.
        levels: levels in ascending order of power.
        partitions: the partitions.

    Raises:
        ValueError: if no partition is within the other limits.
    """
    whole = [one for one in levels if one.duty == 1.0]
    anchors = sorted({round(at) for at in np.linspace(0, len(whole) - 1, _ANCHORS)})
    free = replace(problem, cap_w=None)
    judged = judge(
        free, model, [whole[at].configuration(one) for one in partitions for at in anchors]
    )
    rows = [judged[at : at + len(anchors)] for at in range(0, len(judged), len(anchors))]
    is_allowed = [any(one.excess == 0.0 for one in row) for row in rows]
    kept = [row for row, allowed in zip(rows, is_allowed, strict=True) if allowed]
    if not kept:
        raise ValueError(
            f"none of {len(rows)} partitions is within the limits other than the cap; allow other "
            "shares or batches, lower rates, or more memory or latency"
        )
    powers = _between(
        anchors, len(whole), [[one.prediction.power_w.value for one in r] for r in kept]
    )
    rates = _between(anchors, len(whole), [[_score(one) for one in row] for row in kept])
    idle = model.predict(whole[0].configuration(())).power_w
    # A predictor without windows of waiting tenants may predict more than that of any work.
    idle_w = min(idle.value, 0.9 * float(np.exp(powers[:, 0].min())))
    duties = np.array([one.duty for one in levels if one.duty < 1.0])
    powers_w = np.exp(powers)
    errors = np.array([max(_error(one.prediction.power_w) for one in row) for row in kept])
    chosen = tuple(one for one, ok in zip(partitions, is_allowed, strict=True) if ok)
    return Candidates(
        partitions=chosen,
        processes=_processes(chosen),
        features=np.array([_features(one) for one in chosen]),
        levels=tuple(levels),
        powers_w=np.hstack([idle_w + duties * (powers_w[:, :1] - idle_w), powers_w]),
        rates=np.hstack([np.log(duties) + rates[:, :1], rates]),
        power_errors=errors * powers_w[:, -1] / (powers_w[:, -1] - idle_w),
        errors=np.hypot(
            [_error(row[-1].prediction.throughput_per_s) for row in kept], _ELASTICITY * errors
        ),
        idle_w=idle_w,
        idle_error=min(_error(idle), _MOST_IDLE),
    )


def _processes(partitions: Sequence[Tenants]) -> NDArray[np.int64]:
    numbers: dict[tuple[tuple[str, float], ...], int] = {}
    keys = [tuple(sorted((one.model, one.share_pct) for one in each)) for each in partitions]
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys])


def _features(tenants: Tenants) -> list[float]:
    """Return mean batch, mean share and number of tenants, in the units of the predictor.

    A batch that is seven times larger, a share that is a third, and three times the tenants are one
    unit.
    """
    batches, shares = ([getattr(t, name) for t in tenants] for name in ("batch", "share_pct"))
    return [
        float(np.log(batches).mean() / 2.0),
        float(np.log(shares).mean()),
        math.log1p(len(tenants)),
    ]


def _score(one: Judged) -> float:
    return one.value if one.excess == 0.0 else 0.0


def _error(one: Interval) -> float:
    return math.log(one.high / one.value) / Z


def _between(anchors: Sequence[int], count: int, rows: Sequence[Sequence[float]]) -> Array:
    """Return logarithms at all levels from those at anchors; minus infinity next to a zero."""
    with np.errstate(divide="ignore"):
        known = np.log(np.array(rows, dtype=float))
    places = np.arange(count)
    return np.array([np.interp(places, anchors, row) for row in np.nan_to_num(known, neginf=-1e3)])


def partitions(problem: Problem, model: PredictionModel, levels: Sequence[Level]) -> list[Tenants]:
    """Return partitions that may be the best under some cap.

    For one model they are all numbers of equal tenants. Of the published tasks with a fixed cap,
    the best of them is at most 3.1 % below the best known plan, by PctoDL's published predictor.
    For several models they are the plans for caps from 40 to 100 % of the highest power, and those
    with other batches.

    Raises:
        ValueError: if there is no plan even without a cap.
    """
    if len(set(problem.models)) == 1:
        return [one.tenants for one in enumeration.homogeneous(problem, [GpuSetting()])]
    free = replace(problem, cap_w=None, settings=_settings(levels))
    best = plan(free, model)
    if not isinstance(best, Plan):
        raise ValueError(best.text())
    highest_w = best.prediction.power_w.value
    plans = [best] + [plan(replace(free, cap_w=part * highest_w), model) for part in _PARTS]
    found = [one.configuration for one in plans if isinstance(one, Plan)]
    return list(dict.fromkeys(other for one in found for other in _with_batches(problem, one)))


def planned(
    problem: Problem, model: PredictionModel, levels: Sequence[Level], cap_w: float
) -> Tenants | None:
    """Return the tenants of the plan for a cap in W; ``None`` if there is none."""
    found = plan(replace(problem, cap_w=cap_w, settings=_settings(levels)), model)
    return found.configuration.tenants if isinstance(found, Plan) else None


def _settings(levels: Sequence[Level]) -> tuple[GpuSetting, ...]:
    whole = [one for one in levels if one.duty == 1.0]
    places = sorted({round(at) for at in np.linspace(0, len(whole) - 1, _SETTINGS)})
    return tuple(GpuSetting(whole[at].sm_mhz, None, whole[at].power_limit_w) for at in places)


def _with_batches(problem: Problem, configuration: Configuration) -> list[Tenants]:
    """Return the tenants, and those with the next smaller and larger batch of each kind."""
    tenants, batches = configuration.tenants, problem.batches
    found = [tenants]
    for kind in dict.fromkeys(tenants):
        at = batches.index(kind.batch)
        for batch in batches[max(at - 1, 0) : at + 2]:
            other = replace(kind, batch=batch)
            found.append(tuple(other if one == kind else one for one in tenants))
    return found
