"""Searches for the best plan: exactly where the model is additive, else by enumeration and search.

::

    additive model ──> milp ─────────┐
                       enumeration ──┼──> judged by the predictor ──> local search ──> plan
                       greedy ───────┘         (if the model is not exactly additive)
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import Final

import numpy as np

from energy_callbacks.inference.planner import enumeration, greedy, local_search, milp
from energy_callbacks.inference.planner.additive import (
    AdditiveModel,
    Array,
    System,
    systems,
)
from energy_callbacks.inference.planner.approximation import Approximation, Slowed, optimistic
from energy_callbacks.inference.planner.judge import TOLERANCE, Judged, judge
from energy_callbacks.inference.planner.plan import Infeasible, Plan
from energy_callbacks.inference.planner.problem import Problem
from energy_callbacks.inference.planner.refusal import refuse
from energy_callbacks.inference.protocols import PredictionModel
from energy_callbacks.inference.records import Configuration

METHODS: Final = ("auto", "milp", "enumerate", "local", "greedy")
# What a plan that is chosen among measured configurations has instead of a method.
_MEASURED: Final = "measurement"
# A predictor that differs less than this from an additive model in plans of mixed tenants is
# additive: the error of the predictor itself is larger (docs/inference.md, "Fit and predict").
_ADDITIVE: Final = 0.02
# Packings that the predictor itself judges, after an additive model has ordered them.
_JUDGED: Final = 200
# Of this many settings, the first in that order, it judges all packings of equal tenants.
_SETTINGS: Final = 3
# If a model is not additive, plans are searched with these throughputs of tenants beside others,
# relative to those alone, and with those of the plans so found.
_FACTORS: Final = (0.8,)
_ATTEMPTS: Final = 3
# Local searches begin with this many plans of linear programs, and of random configurations.
_STARTS, _RANDOM_STARTS = 3, 6
Pairs = Sequence[tuple[System, System]]
Solver = Callable[[Pairs], Configuration | None]


def plan(
    problem: Problem,
    model: PredictionModel,
    *,
    method: str = "auto",
    additive: AdditiveModel | None = None,
    measured: Sequence[Configuration] | None = None,
) -> Plan | Infeasible:
    """Return the best plan, or which limit makes a plan impossible.

    The best of many predictions is more often too good than too bad. That of a configuration which
    was measured, and to which the model was fitted, is not.

    Args:
        problem: models, limits and objective.
        model: predicts configurations.
        method: ``"auto"`` for the best of all methods; ``"milp"``, ``"enumerate"``, ``"local"`` or
            ``"greedy"`` for the plan of one of them.
        additive: the same predictor if it is exactly additive; by default it is approximated.
        measured: if given, the plan is one of these configurations.

    Raises:
        ValueError: if the method is unknown, if one is given for measured configurations, or if
            the model cannot predict a configuration.
    """
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
    if measured is not None and method != "auto":
        raise ValueError(f"measured configurations are compared without a method, got {method!r}")
    search = _Search.begin(problem, model, additive)
    found = search.by_method(method) if measured is None else {_MEASURED: search.best_of(measured)}
    best_name, best = _best(found if method == "auto" else {method: found[method]})
    if best is None or best.excess > 0.0:
        return _refusal(search, found, method)
    bound, reason = search.bound(best)
    return Plan(
        problem=problem,
        configuration=best.configuration,
        prediction=best.prediction,
        method=best_name,
        value=best.value,
        bound=bound,
        bound_reason=reason,
        margin=best.margin,
        others={
            name: one.value if one is not None and one.excess == 0.0 else None
            for name, one in found.items()
            if name != best_name
        },
    )


def _best(found: Mapping[str, Judged | None]) -> tuple[str, Judged | None]:
    judged = [(name, one) for name, one in found.items() if one is not None]
    return max(judged, key=lambda pair: pair[1].rank) if judged else ("", None)


def _refusal(search: "_Search", found: Mapping[str, Judged | None], method: str) -> Infeasible:
    best_name, best = _best(found)
    message = ""
    if best is not None and best.excess == 0.0:
        message = f"{method} finds no plan, but {best_name} does; use --method auto"
    elif _MEASURED in found:
        message = (
            "no measured configuration has only the given models, shares, batches and settings and "
            "is within all limits; plan without measured configurations, and measure that plan"
        )
    if message:
        return Infeasible(
            problem=search.problem, limit="", allowed=None, needed=None, message=message
        )
    return refuse(search.problem, search.additive, search.pairs, is_proven=search.deviation == 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    """A problem with its model, and the linear limits at each setting.

    Attributes:
        problem: the problem.
        model: the predictor.
        additive: the predictor as an additive model.
        deviation: largest relative difference of both.
        pairs: for each setting, the systems for a single tenant and for several tenants.
        solved: the best plan of the additive model.
    """

    problem: Problem
    model: PredictionModel
    additive: AdditiveModel
    deviation: float
    pairs: tuple[tuple[System, System], ...]
    solved: milp.Found | None

    @classmethod
    def begin(
        cls, problem: Problem, model: PredictionModel, additive: AdditiveModel | None
    ) -> "_Search":
        deviation = 0.0
        if additive is None:
            additive = approximation = Approximation(model)
            deviation = approximation.deviation(problem)
        pairs = _pairs(problem, additive)
        is_near = deviation <= _ADDITIVE
        return cls(
            problem=problem,
            model=model,
            additive=additive,
            deviation=deviation,
            pairs=pairs,
            solved=milp.solve(pairs, problem.objective, milp.EXACT if is_near else milp.ROUGH),
        )

    def by_method(self, method: str) -> dict[str, Judged | None]:
        """Return the plan of each method; they may exceed limits.

        Enumeration and local search are left out if integer programming is exact, unless one of
        them is asked for.
        """
        is_exact = self.deviation == 0.0
        proposals = {
            "milp": self._proposals(self._rough, self.solved and self.solved.configuration),
            "greedy": self._proposals(greedy.solve, greedy.solve(self.pairs) if is_exact else None),
        }
        found = {
            name: max(plans, key=lambda one: one.rank, default=None)
            for name, plans in proposals.items()
        }
        if method == "enumerate" or not is_exact:
            found["enumerate"] = self._enumerate()
        if method == "local" or not is_exact:
            found["local"] = self._local([*found.values(), self._least_power()], proposals["milp"])
        return found

    def best_of(self, configurations: Sequence[Configuration]) -> Judged | None:
        """Return the best of those configurations that have the problem's choices only."""
        allowed = judge(self.problem, self.model, list(filter(self.problem.has, configurations)))
        return max(allowed, key=lambda one: one.rank, default=None)

    def bound(self, best: Judged) -> tuple[float, str]:
        """Return a bound of the objective, and where it comes from."""
        pick = max if self.problem.objective == "throughput" else min
        is_near = self.deviation <= _ADDITIVE and self.solved is not None
        relaxed = milp.relaxed(self.pairs, self.problem.objective) if is_near else None
        if self.solved is not None and relaxed is not None:
            reason = (
                f"integer programming (HiGHS) over all plans of the additive model; its linear "
                f"relaxation is {relaxed:.5g}"
            )
            if self.deviation > 0.0:
                reason += (
                    f"; the predictor differs by {100.0 * self.deviation:.2g} % in mixed plans"
                )
            return pick(self.solved.bound, best.value), reason
        pairs = optimistic(self.problem, self.additive, self.pairs)
        bound = milp.relaxed(pairs, self.problem.objective)
        reason = (
            "linear relaxation with the best throughput and energy per sample that each tenant has "
            "alone or among equal ones, assuming that parts of the highest throughput of each "
            "model add up to at most 100 %; in mixed plans, the predictor is "
            f"{100.0 * self.deviation:.2g} % from an additive model"
        )
        value = best.value if bound is None else pick(bound, best.value)
        if bound is None or abs(value / bound - 1.0) > TOLERANCE:
            reason = f"not proven, because the plan is better than the {reason}"
        return value, reason

    def _judged(self, configuration: Configuration | None) -> Judged | None:
        if configuration is None:
            return None
        return judge(self.problem, self.model, [configuration])[0]

    def _proposals(self, solve: Solver, exact: Configuration | None) -> list[Judged]:
        """Return plans of a solver of additive models, which are adapted to the predictor.

        Args:
            solve: the solver.
            exact: its plan for the additive model.
        """
        if self.deviation == 0.0:
            return [] if exact is None else judge(self.problem, self.model, [exact])
        models = set(self.problem.models)
        starts = [
            self.additive,
            *(Slowed(self.additive, dict.fromkeys(models, factor)) for factor in _FACTORS),
        ]
        return [found for start in starts for found in self._adapted(start, solve)]

    def _rough(self, pairs: Pairs) -> Configuration | None:
        """Return a plan of an additive model that approximates the predictor."""
        solved = milp.solve(pairs, self.problem.objective, milp.ROUGH)
        return solved.configuration if solved else None

    def _local(self, plans: Sequence[Judged | None], more: Sequence[Judged]) -> Judged | None:
        """Return the best plan of local searches from plans, the best of others, and at random."""
        known = [one for one in plans if one is not None]
        known += sorted(more, key=lambda one: one.rank, reverse=True)[:_STARTS]
        others = local_search.random_packings(self.problem, _RANDOM_STARTS)
        known += judge(self.problem, self.model, others)
        starts = {one.configuration: one for one in known}.values()
        found = [local_search.improve(self.problem, self.model, one) for one in starts]
        return max(found, key=lambda one: one.rank, default=None)

    def _adapted(self, model: AdditiveModel, solve: Solver) -> Iterator[Judged]:
        """Yield plans, each with the slowdown and the error of the power of the one before."""
        problem = self.problem
        for _ in range(_ATTEMPTS):
            found = self._judged(solve(_pairs(problem, model)))
            if found is None:
                return
            yield found
            if problem.cap_w is not None:
                problem = replace(problem, cap_w=max(problem.cap_w - found.excess_w, 1.0))
            model = Slowed(self.additive, self._factors(found))

    def _factors(self, found: Judged) -> dict[str, float]:
        """Return the throughput of each model beside others, relative to that alone."""
        tenants = found.configuration.tenants
        alone = self.model.predict_many(
            [replace(found.configuration, tenants=(one,)) for one in tenants]
        )
        beside = found.prediction.tenant_throughputs_per_s
        ratios: dict[str, list[float]] = {}
        for tenant, slow, fast in zip(tenants, beside, alone, strict=True):
            ratio = slow.value / fast.throughput_per_s.value
            ratios.setdefault(tenant.model, []).append(ratio)
        every = [ratio for each in ratios.values() for ratio in each]
        return {
            model: min(1.0, mean(ratios.get(model, every))) for model in set(self.problem.models)
        }

    def _enumerate(self) -> Judged | None:
        """Return the best packing with one or two kinds of tenants."""
        count = 1 if self.deviation == 0.0 else _JUDGED
        objective = self.problem.objective
        proposals: list[tuple[float, System, Array]] = []
        for alone, shared in self.pairs:
            single = milp.single(alone, objective)
            if single is not None:
                proposals.append((single.score(objective), alone, single.counts))
            found = enumeration.best(shared, objective, count)
            proposals += [(score, shared, counts) for counts, score in found]
        proposals.sort(key=lambda one: -one[0])
        chosen = [milp.configuration(*one[1:]) for one in proposals[:count]]
        if self.deviation > 0.0:
            settings = dict.fromkeys(system.setting for _, system, _ in proposals)
            chosen += enumeration.homogeneous(self.problem, list(settings)[:_SETTINGS])
        judged = judge(self.problem, self.model, chosen)
        return max(judged, key=lambda one: one.rank, default=None)

    def _least_power(self) -> Judged | None:
        """Return the single tenant with the least power, where a search can begin."""
        choices = [
            (float(alone.static_w + alone.powers_w.min()), alone)
            for alone, _ in self.pairs
            if alone.tenants
        ]
        if not choices:
            return None
        _, alone = min(choices, key=lambda pair: pair[0])
        tenant = alone.tenants[int(np.argmin(alone.powers_w))]
        return self._judged(alone.setting.configuration([tenant]))


def _pairs(problem: Problem, additive: AdditiveModel) -> tuple[tuple[System, System], ...]:
    return tuple(systems(problem, additive, setting) for setting in problem.settings)
