"""A comparison as plain text and as markdown."""

from collections.abc import Iterator

from energy_callbacks.compare.answers import change, detectable
from energy_callbacks.compare.model import Comparison, Effect, Group, Quality
from energy_callbacks.compare.quantities import BY_NAME
from energy_callbacks.core import formatting
from energy_callbacks.core.tables import aligned, escaped
from energy_callbacks.core.tables import markdown as markdown_table
from energy_callbacks.report.model.display import as_text

_Row = tuple[str, ...]


@as_text.register
def render(comparison: Comparison) -> str:
    """For a terminal of 100 columns."""
    lines = [*(formatting.one_line(answer) for answer in comparison.answers), ""]
    lines += [f"! {formatting.one_line(caveat.message)}" for caveat in comparison.caveats]
    if comparison.caveats:
        lines.append("")
    for group in comparison.groups[1:]:
        lines += aligned(_table(comparison, group))
        lines.append("")
    lines += notes(comparison)
    return "\n".join(lines).rstrip() + "\n"


def markdown(comparison: Comparison) -> str:
    """For pull requests and wikis."""
    lines = [f"**{escaped(answer)}**\n" for answer in comparison.answers]
    lines += [f"> {escaped(caveat.message)}\n" for caveat in comparison.caveats]
    for group in comparison.groups[1:]:
        lines += [*markdown_table(_table(comparison, group)), ""]
    lines += [f"{escaped(note)}\n" for note in notes(comparison)]
    return "\n".join(lines)


def _table(comparison: Comparison, group: Group) -> list[list[str]]:
    table = [head(comparison, group), *rows(comparison, group)]
    return [[formatting.one_line(cell) for cell in row] for row in table]


def head(comparison: Comparison, group: Group) -> _Row:
    """The names of the columns."""
    first = comparison.groups[0]
    sides = (f"{one.name}, n={len(one.runs)}" for one in (first, group))
    return ("", *sides, "change (95 %)", "verdict", "detectable")


def rows(comparison: Comparison, group: Group) -> Iterator[_Row]:
    """A row for each quantity that both know, and one for the metric."""
    first = comparison.groups[0]
    for effect in comparison.effects:
        if effect.group != group.name:
            continue
        quantity = BY_NAME[effect.quantity]
        means = (quantity.say(one.means[quantity.name]) for one in (first, group))
        yield (quantity.title, *means, change(effect), effect.verdict, _detectable(effect))
    for quality in comparison.qualities:
        if quality.group == group.name:
            bests = (_number(one.metric_mean) for one in (first, group))
            yield (f"Best {comparison.metric}", *bests, _gained(quality), quality.verdict, "")


def notes(comparison: Comparison) -> list[str]:
    """How the figures came about."""
    found = []
    bases = {effect.basis for effect in comparison.effects} - {None}
    if "blocks" in bases:
        found.append(
            "One run a side: intervals are of blocks of about ten seconds inside each run. "
            "How much two runs of the same differ is not in them."
        )
    elif not bases:
        found.append("A group of one run: no intervals. Repeat it to learn how runs differ.")
    if "pairs" in bases:
        found.append("Runs are compared in pairs, in the order in which they were made or given.")
    asked = sum(effect.p is not None for effect in comparison.effects)
    if asked > 1:
        found.append(f"Verdicts allow for the {asked} questions asked at once (Holm).")
    if any(effect.systematic for effect in comparison.effects):
        found.append("Intervals of energy hold what sensors of unlike cards may differ by.")
    if comparison.target is not None:
        way = "at most" if comparison.direction == "lower" else "at least"
        found.append(f"The target is {comparison.metric} of {way} {_number(comparison.target)}.")
    return found


def _detectable(effect: Effect) -> str:
    return "" if effect.detectable is None else detectable(effect.detectable)


def _gained(quality: Quality) -> str:
    """In the metric's own direction: more is better."""
    if quality.low is None or quality.high is None:
        return f"{quality.difference:+.3g}"
    return f"{quality.difference:+.3g} ({quality.low:+.3g} to {quality.high:+.3g})"


def _number(value: float | None) -> str:
    return formatting.UNKNOWN if value is None else f"{value:.5g}"
