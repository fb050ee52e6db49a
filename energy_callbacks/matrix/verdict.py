"""Finds the configuration with the lowest energy; tests whether the others take more energy.

The cheapest configuration is the one with the lowest mean cost; costs are energies in joules.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from energy_callbacks.compare import Comparison, compare, validity
from energy_callbacks.compare.answers import answers, change, reason
from energy_callbacks.compare.model import Caveat, Effect
from energy_callbacks.compare.quantities import ENERGY_TO_TARGET, QUANTITIES
from energy_callbacks.core import formatting
from energy_callbacks.matrix.plan import MatrixPlan
from energy_callbacks.matrix.rows import MatrixTable

# Maximum number of configurations that a list in a sentence names.
_NAMED: Final = 3
_GPU_ENERGY: Final = "gpu_energy_j"


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixVerdict:
    """The result of a matrix.

    Attributes:
        sentence: the result as text.
        is_real: whether the cheapest configuration takes significantly less energy than every
            other one; ``None`` if fewer than two can be compared, or if any cost is unknown.
        comparison: the configurations, compared with one of them. Configurations without a job of
            resolved energy are left out. The others are compared with the baseline if it is set and
            not left out, otherwise with the cheapest configuration. ``None`` if fewer than two can
            be compared.
        quantity: name of the quantity that ranks the configurations; ``None`` if they are not
            compared.
        costs_j: mean of ``quantity`` in joules by name of the configuration, the cheapest first. If
            ``quantity`` is ``None``, the mean energy.
    """

    sentence: str
    is_real: bool | None = None
    comparison: Comparison | None = None
    quantity: str | None = None
    costs_j: Mapping[str, float]

    @property
    def target(self) -> float | None:
        """Target value of the metric if costs are energies to reach it; ``None`` otherwise."""
        is_to_target = self.quantity == ENERGY_TO_TARGET
        return self.comparison.target if self.comparison and is_to_target else None


def verdict(plan: MatrixPlan, table: MatrixTable) -> MatrixVerdict:
    """Rank the configurations by cost, and compare the cheapest with each of the others."""
    # Jobs of unknown energy are left out, so that the other jobs of a configuration still count.
    groups = {row.name: row.measured for row in table.rows if row.measured}
    if len(groups) < 2:
        return _without_comparison(table)
    names = {one.name for runs in groups.values() for run in runs for one in run.metrics}
    metric, goal = (plan.metric, plan.goal) if plan.metric in names else (None, None)

    def against(first: str) -> Comparison:
        ordered = {first: groups[first], **groups}
        comparison = compare(ordered, metric=metric, goal=goal)
        return comparison if table.scope == "total" else _of_gpus(comparison)

    first = next(iter(groups))
    comparison = against(first)
    quantity = _quantity(comparison, table, is_judged=metric is not None)
    means = {group.name: group.means.get(quantity) for group in comparison.groups}
    ranked = sorted((mean, name) for name, mean in means.items() if mean is not None)
    costs_j = {name: mean for mean, name in ranked}
    if not costs_j:
        return _without_comparison(table)
    best = next(iter(costs_j))
    by_best = comparison if first == best else against(best)
    baseline = plan.baseline_name if plan.baseline_name in groups else best
    effects = [e for name in costs_j if (e := by_best.effect(name, quantity)) is not None]
    unknown = [row.name for row in table.rows if row.name not in costs_j]
    is_known = bool(effects) and not unknown
    return MatrixVerdict(
        sentence=_sentence(plan, by_best, quantity, costs_j, effects) + _rest(unknown, table),
        is_real=all(one.verdict == "higher" for one in effects) if is_known else None,
        comparison=by_best if baseline == best else against(baseline),
        quantity=quantity,
        costs_j=costs_j,
    )


def _quantity(comparison: Comparison, table: MatrixTable, *, is_judged: bool) -> str:
    """Return the name of the quantity by which configurations are ranked.

    If jobs shared a host, the result is the energy of the GPUs. Otherwise, if all configurations
    reached the target of the metric, it is the energy to reach the target. In all other cases, it
    is the energy of the run.
    """
    if table.scope == "gpu":
        return _GPU_ENERGY
    is_reached = all(ENERGY_TO_TARGET in group.means for group in comparison.groups)
    return ENERGY_TO_TARGET if is_judged and is_reached else "energy_j"


def _of_gpus(comparison: Comparison) -> Comparison:
    """Return a comparison without the quantities that include the energy of a shared host."""
    shared = [one.name for one in QUANTITIES if one.is_energy and one.name != _GPU_ENERGY]
    groups = [
        replace(group, means={n: v for n, v in group.means.items() if n not in shared})
        for group in comparison.groups
    ]
    caveat = Caveat(
        code="shared_host",
        message="Jobs shared the CPU and RAM of a host: only the energy of the GPUs is compared.",
        quantities=tuple(shared),
        is_fatal=True,
    )
    left = replace(
        comparison,
        primary=_GPU_ENERGY,
        groups=tuple(groups),
        effects=tuple(one for one in comparison.effects if one.quantity not in shared),
        caveats=(*comparison.caveats, caveat),
    )
    return replace(left, answers=tuple(answers(left)))


def _rest(unknown: Sequence[str], table: MatrixTable) -> str:
    """Return a sentence about the configurations of unknown cost; empty if there are none."""
    if not unknown:
        return ""
    names = ", ".join(unknown[:_NAMED]) + (", ..." if len(unknown) > _NAMED else "")
    return f" For {len(unknown)} of {len(table.rows)} configurations no result is known: {names}."


def _without_comparison(table: MatrixTable) -> MatrixVerdict:
    """Return the verdict if fewer than two configurations can be compared."""
    known = {row.name: row.energy_j for row in table.rows if row.energy_j is not None}
    costs = ", ".join(f"{name}: {formatting.energy(cost_j)}" for name, cost_j in known.items())
    sentence = f"There are no two configurations to compare. {costs}."
    if not known:
        sentence = "No configuration has a known result yet."
    return MatrixVerdict(sentence=sentence, costs_j=known)


def _sentence(
    plan: MatrixPlan,
    comparison: Comparison,
    quantity: str,
    costs_j: Mapping[str, float],
    effects: Sequence[Effect],
) -> str:
    best, cost_j = next(iter(costs_j.items()))
    what = "per run"
    if quantity == ENERGY_TO_TARGET and comparison.target is not None:
        what = f"to reach {comparison.metric} {comparison.target:.4g}"
    cheapest = f"{best} uses the least energy, {formatting.energy(cost_j)} {what}"
    if not effects:
        return f"{cheapest}; the energy of the others is not known."
    return f"{cheapest}. {_reality(comparison, effects)}{_against_baseline(plan, best, effects)}"


def _reality(comparison: Comparison, effects: Sequence[Effect]) -> str:
    """Return a text that says which configurations take significantly more than the cheapest.

    For the other configurations, the text says why their difference is not resolved.

    Args:
        comparison: comparison with the cheapest configuration.
        effects: effects of all configurations except the cheapest, by increasing cost.
    """
    above = [effect for effect in effects if effect.verdict == "higher"]
    open_ = [effect for effect in effects if effect.verdict != "higher"]
    if not open_:
        every = "the other uses" if len(above) == 1 else "each other one uses"
        return (
            f"The difference is significant: {every} more energy, the next {_changes(effects[:1])}."
        )
    first = comparison.groups[0].name
    reasons = dict.fromkeys(
        reason(one, any(validity.forbids(caveat, one, first) for caveat in comparison.caveats))
        for one in open_
    )
    text = f"It is not resolved whether it uses less than {_changes(open_)}: {'; '.join(reasons)}."
    return text + (f" It uses significantly less than {_changes(above)}." if above else "")


def _changes(effects: Sequence[Effect]) -> str:
    texts = [f"{effect.group} ({change(effect)})" for effect in effects[:_NAMED]]
    rest = [f"{len(effects) - _NAMED} more"] if len(effects) > _NAMED else []
    return ", ".join(texts + rest)


def _against_baseline(plan: MatrixPlan, best: str, effects: Sequence[Effect]) -> str:
    """Return a sentence on the baseline's cost; empty if no baseline is set or it is ``best``."""
    if plan.baseline_name in (None, best):
        return ""
    effect = next((one for one in effects if one.group == plan.baseline_name), None)
    if effect is None:
        return f" The energy of the baseline {plan.baseline_name} is not known."
    is_real = (
        "uses significantly more" if effect.verdict == "higher" else "is not resolved to use more"
    )
    return f" The baseline {plan.baseline_name} {is_real} ({change(effect)})."
