"""Which configuration is the cheapest, and whether that is more than chance."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from energy_callbacks.compare import Comparison, compare, validity
from energy_callbacks.compare.answers import answers, change, reason
from energy_callbacks.compare.model import Caveat, Effect
from energy_callbacks.compare.quantities import ENERGY_TO_TARGET, QUANTITIES
from energy_callbacks.core import formatting
from energy_callbacks.matrix.plan import MatrixPlan
from energy_callbacks.matrix.rows import ConfigurationRow, MatrixTable, Scope
from energy_callbacks.report import EnergyReport

_NAMED: Final = 3
_RUN: Final = {"total": "energy_j", "gpu": "gpu_energy_j"}


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixVerdict:
    """The answer.

    Attributes:
        sentence: for people.
        is_real: whether the cheapest is cheaper than each other beyond chance; ``None`` if
            there are no two to compare, or nothing is known of one.
        comparison: of all configurations with the baseline, else with the cheapest.
        quantity: of the comparison, by which they are ranked.
        costs_j: means of it, by configuration, the cheapest first.
    """

    sentence: str
    is_real: bool | None = None
    comparison: Comparison | None = None
    quantity: str | None = None
    costs_j: Mapping[str, float]

    @property
    def target(self) -> float | None:
        """The metric's value that costs are those of reaching; ``None`` for whole runs."""
        is_to_target = self.quantity == ENERGY_TO_TARGET and self.comparison is not None
        return self.comparison.target if is_to_target and self.comparison else None


def verdict(plan: MatrixPlan, found: MatrixTable) -> MatrixVerdict:
    """Rank the configurations and ask the comparison about the first two."""
    groups = {row.name: list(_known(row, found.scope)) for row in found.rows}
    known = [name for name, reports in groups.items() if reports]
    if len(known) < 2:
        return _alone(found)
    metric = plan.metric if any(row.metric is not None for row in found.rows) else None

    def against(first: str) -> Comparison:
        order = [first, *(name for name in known if name != first)]
        whole = compare({name: groups[name] for name in order}, metric=metric, goal=plan.goal)
        return whole if found.scope == "total" else _of_gpus(whole)

    comparison = against(known[0])
    quantity = _quantity(comparison, found, is_judged=metric is not None)
    means = {group.name: group.means.get(quantity) for group in comparison.groups}
    ranked = sorted((mean, name) for name, mean in means.items() if mean is not None)
    if not ranked:
        return _alone(found)
    costs_j = {name: mean for mean, name in ranked}
    best = next(iter(costs_j))
    by_best = comparison if known[0] == best else against(best)
    first = plan.baseline_name if plan.baseline_name in known else best
    effects = [e for name in costs_j if (e := by_best.effect(name, quantity)) is not None]
    unknown = [row.name for row in found.rows if row.name not in costs_j]
    return MatrixVerdict(
        sentence=_sentence(plan, by_best, quantity, costs_j, effects) + _rest(unknown, found),
        is_real=_is_real(effects) if not unknown else None,
        comparison=by_best if first == best else against(first),
        quantity=quantity,
        costs_j=costs_j,
    )


def _known(row: ConfigurationRow, scope: Scope) -> Iterator[EnergyReport]:
    """Of its runs, those whose energy is known: one that is not must not hide the others."""
    for one in row.done:
        if one.report is None:
            continue
        figure = getattr(one.report.energy, scope)
        if figure.energy_j and figure.is_resolved:
            yield one.report


def _of_gpus(comparison: Comparison) -> Comparison:
    """Without what holds the energy of a host that several jobs have shared."""
    shared = [one.name for one in QUANTITIES if one.is_energy and one.name != "gpu_energy_j"]
    groups = [
        replace(group, means={n: v for n, v in group.means.items() if n not in shared})
        for group in comparison.groups
    ]
    caveat = Caveat(
        code="shared_host",
        message="Jobs shared the CPU and RAM of a host: only the GPUs' energy is compared.",
        quantities=tuple(shared),
        is_fatal=True,
    )
    left = replace(
        comparison,
        primary="gpu_energy_j",
        groups=tuple(groups),
        effects=tuple(one for one in comparison.effects if one.quantity not in shared),
        caveats=(*comparison.caveats, caveat),
    )
    return replace(left, answers=tuple(answers(left)))


def _is_real(effects: Sequence[Effect]) -> bool | None:
    """Whether each other takes more beyond chance."""
    return all(effect.verdict == "higher" for effect in effects) if effects else None


def _rest(unknown: Sequence[str], found: MatrixTable) -> str:
    """Limitations of the answer."""
    if not unknown:
        return ""
    told = ", ".join(unknown[:_NAMED]) + (", ..." if len(unknown) > _NAMED else "")
    return f" Of {len(unknown)} of {len(found.rows)} configurations nothing is known: {told}."


def _alone(found: MatrixTable) -> MatrixVerdict:
    """If there are no two to compare."""
    known = {row.name: row.energy_j for row in found.rows if row.energy_j is not None}
    if not known:
        return MatrixVerdict(sentence="Nothing is known yet of any configuration.", costs_j={})
    told = ", ".join(f"{name}: {formatting.energy(cost_j)}" for name, cost_j in known.items())
    return MatrixVerdict(
        sentence=f"There are no two configurations to compare. {told}.", costs_j=known
    )


def _quantity(comparison: Comparison, found: MatrixTable, *, is_judged: bool) -> str:
    """The compared cost: reaching the metric that was asked for, else a whole run."""
    is_reached = all(ENERGY_TO_TARGET in group.means for group in comparison.groups)
    if is_judged and is_reached and found.scope == "total":
        return ENERGY_TO_TARGET
    return _RUN[found.scope]


def _sentence(
    plan: MatrixPlan,
    comparison: Comparison,
    quantity: str,
    costs_j: Mapping[str, float],
    effects: Sequence[Effect],
) -> str:
    best, cost_j = next(iter(costs_j.items()))
    what = "a run"
    if quantity == ENERGY_TO_TARGET and comparison.target is not None:
        what = f"to reach {comparison.metric} {comparison.target:.4g}"
    said = f"{best} is the cheapest, with {formatting.energy(cost_j)} {what}"
    if not effects:
        return f"{said}; of no other is that known."
    return f"{said}. {_reality(comparison, effects)}{_against_baseline(plan, best, effects)}"


def _reality(comparison: Comparison, effects: Sequence[Effect]) -> str:
    """Of each other against the cheapest, the next cheapest first."""
    above = [effect for effect in effects if effect.verdict == "higher"]
    open_ = [effect for effect in effects if effect.verdict != "higher"]
    if _is_real(effects):
        every = "the other takes" if len(above) == 1 else "each other takes"
        return f"That is real: {every} more beyond chance, the next {_told(effects[:1])}."
    first = comparison.groups[0].name
    reasons = dict.fromkeys(
        reason(one, any(validity.forbids(c, one, first) for c in comparison.caveats))
        for one in open_
    )
    told = f"Whether it is cheaper than {_told(open_)} is not resolved: {'; '.join(reasons)}."
    return told + (f" It is really cheaper than {_told(above)}." if above else "")


def _told(effects: Sequence[Effect]) -> str:
    told = [f"{effect.group} ({change(effect)})" for effect in effects[:_NAMED]]
    rest = [f"{len(effects) - _NAMED} more"] if len(effects) > _NAMED else []
    return ", ".join(told + rest)


def _against_baseline(plan: MatrixPlan, best: str, effects: Sequence[Effect]) -> str:
    """The page compares with the baseline; this compares it with the cheapest."""
    if plan.baseline_name in (None, best):
        return ""
    found = [effect for effect in effects if effect.group == plan.baseline_name]
    if not found:
        return f" Of the baseline {plan.baseline_name} the cost is not known."
    is_real = "really takes" if found[0].verdict == "higher" else "is not resolved to take"
    return f" The baseline {plan.baseline_name} {is_real} more ({change(found[0])})."
