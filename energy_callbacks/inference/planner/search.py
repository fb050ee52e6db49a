"""Searches for the best plan: exactly where the model is additive, else by enumeration and search.

::

    additive model ──> milp ─────────┐
                       enumeration ──┼──> judged by the predictor ──> local search ──> plan
                       greedy ───────┘         (if the model is not exactly additive)
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from energy_callbacks.inference.planner import enumeration, greedy, local_search, milp
from energy_callbacks.inference.planner.additive import (
    AdditiveModel,
    Optimistic,
    System,
    systems,
)
from energy_callbacks.inference.planner.approximation import Approximation
from energy_callbacks.inference.planner.judge import Judged, judge
from energy_callbacks.inference.planner.plan import Infeasible, Plan
from energy_callbacks.inference.planner.problem import Problem
from energy_callbacks.inference.planner.refusal import refuse
from energy_callbacks.inference.protocols import PredictionModel
from energy_callbacks.inference.records import Configuration

METHODS: Final = ("auto", "milp", "enumerate", "local", "greedy")
# A predictor that differs less than this from an additive model in plans of mixed tenants is
# additive: the error of the predictor itself is larger (docs/inference.md, "Fit and predict").
_ADDITIVE: Final = 0.02
# Packings per setting that the predictor itself judges, after an additive model has ordered them.
_JUDGED: Final = 8
# A plan of an approximation may need this many attempts, each with a lower cap.
_ATTEMPTS: Final = 5


def plan(
    problem: Problem,
    model: PredictionModel,
    *,
    method: str = "auto",
    additive: AdditiveModel | None = None,
) -> Plan | Infeasible:
    """Return the best plan, or which limit makes a plan impossible.

    Args:
        problem: models, limits and objective.
        model: predicts configurations.
        method: ``"auto"`` for the best of all methods; ``"milp"``, ``"enumerate"``, ``"local"`` or
            ``"greedy"`` for the plan of one of them.
        additive: the same predictor if it is exactly additive; by default it is approximated.

    Raises:
        ValueError: if the method is unknown, or if the model cannot predict a configuration.
    """
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
    search = _Search.begin(problem, model, additive)
    found = search.by_method(method)
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
    if best is not None and best.excess == 0.0:
        return Infeasible(
            problem=search.problem,
            limit="",
            allowed=None,
            needed=None,
            message=f"{method} finds no plan, but {best_name} does; use --method auto",
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
        return cls(
            problem=problem,
            model=model,
            additive=additive,
            deviation=deviation,
            pairs=pairs,
            solved=milp.solve(pairs, problem.objective),
        )

    def by_method(self, method: str) -> dict[str, Judged | None]:
        """Return the plan of each method; they may exceed limits.

        Enumeration and local search are left out if integer programming is exact, unless one of
        them is asked for.
        """
        is_exact = self.deviation == 0.0
        found = {"milp": self._milp(), "greedy": self._judged(greedy.solve(self.pairs))}
        is_single = len(set(self.problem.models)) == 1
        if method == "enumerate" or (is_single and not is_exact):
            found["enumerate"] = self._enumerate()
        if method == "local" or not is_exact:
            start = _best(found)[1] or self._least_power()
            found["local"] = start and local_search.improve(self.problem, self.model, start)
        return found

    def bound(self, best: Judged) -> tuple[float, str]:
        """Return a bound of the objective, and where it comes from."""
        is_additive = self.deviation <= _ADDITIVE
        solved = (
            self.solved
            if is_additive
            else milp.solve(_pairs(self.problem, Optimistic(self.additive)), self.problem.objective)
        )
        reason = "integer programming (HiGHS), which finds the best plan of the additive model"
        if not is_additive:
            reason = (
                "integer programming (HiGHS) with the best throughput and power that each tenant "
                "has alone or beside others; the predictor is not additive"
            )
        if self.deviation > 0.0:
            reason += f" ({100.0 * self.deviation:.2g} % from it in mixed plans)"
        if solved is None:
            return best.value, reason
        if solved.relaxation is not None:
            reason += f"; linear relaxation: {solved.relaxation:.5g}"
        if self.problem.objective == "throughput":
            return max(solved.bound, best.value), reason
        return min(solved.bound, best.value), reason

    def _judged(self, configuration: Configuration | None) -> Judged | None:
        return None if configuration is None else judge(self.problem, self.model, configuration)

    def _milp(self) -> Judged | None:
        """Return the plan of the linear programs; with a lower cap if the predictor needs it."""
        problem, solved, best = self.problem, self.solved, None
        for _ in range(_ATTEMPTS):
            found = self._judged(None if solved is None else solved.configuration)
            if found is None:
                break
            best = found if best is None or found.rank > best.rank else best
            if found.excess == 0.0 or problem.cap_w is None or found.excess_w <= 0.0:
                break
            problem = replace(problem, cap_w=max(problem.cap_w - found.excess_w, 1.0))
            solved = milp.solve(_pairs(problem, self.additive), problem.objective)
        return best

    def _enumerate(self) -> Judged | None:
        """Return the best packing with one or two kinds of tenants."""
        count = 1 if self.deviation == 0.0 else _JUDGED
        objective = self.problem.objective
        proposals: list[tuple[float, Configuration]] = []
        for alone, shared in self.pairs:
            single = milp.single(alone, objective)
            if single is not None:
                score = single.score(objective)
                proposals.append((score, milp.configuration(alone, single.counts)))
            proposals += [
                (score, milp.configuration(shared, counts))
                for counts, score in enumeration.best(shared, objective, count)
            ]
        proposals.sort(key=lambda pair: -pair[0])
        judged = [judge(self.problem, self.model, one) for _, one in proposals[:count]]
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
