"""Formats a comparison as plain text and as markdown."""

from collections.abc import Iterator

from energy_callbacks.compare.answers import change, detectable
from energy_callbacks.compare.model import Comparison, Group, Quality
from energy_callbacks.compare.quantities import BY_NAME
from energy_callbacks.core import formatting, tables
from energy_callbacks.core.tables import escaped
from energy_callbacks.report.model.display import as_text

_Row = tuple[str, ...]


@as_text.register
def render(comparison: Comparison) -> str:
    """Return the comparison as text for a terminal."""
    lines = [*(formatting.one_line(answer) for answer in comparison.answers), ""]
    lines += [f"! {formatting.one_line(caveat.message)}" for caveat in comparison.caveats]
    if comparison.caveats:
        lines.append("")
    for group in comparison.groups[1:]:
        lines += [*tables.aligned(_table(comparison, group)), ""]
    lines += notes(comparison)
    return "\n".join(lines).rstrip() + "\n"


def markdown(comparison: Comparison) -> str:
    """Return the comparison as markdown for pull requests and wikis."""
    lines = [f"**{escaped(answer)}**\n" for answer in comparison.answers]
    lines += [f"> {escaped(caveat.message)}\n" for caveat in comparison.caveats]
    for group in comparison.groups[1:]:
        lines += [*tables.markdown(_table(comparison, group)), ""]
    lines += [f"{escaped(note)}\n" for note in notes(comparison)]
    return "\n".join(lines)


def _table(comparison: Comparison, group: Group) -> list[list[str]]:
    table = [head(comparison, group), *rows(comparison, group)]
    return [[formatting.one_line(cell) for cell in row] for row in table]


def head(comparison: Comparison, group: Group) -> _Row:
    """Return the names of the columns."""
    sides = (f"{one.name}, n={len(one.runs)}" for one in (comparison.groups[0], group))
    return ("", *sides, "change (95 %)", "verdict", "detectable")


def rows(comparison: Comparison, group: Group) -> Iterator[_Row]:
    """Yield a row for each effect of ``group``, and one for the metric if it is compared."""
    sides = (comparison.groups[0], group)
    for effect in comparison.effects:
        if effect.group == group.name:
            quantity = BY_NAME[effect.quantity]
            means = (quantity.say(one.means[quantity.name]) for one in sides)
            smallest = "" if effect.detectable is None else detectable(effect.detectable)
            yield (quantity.title, *means, change(effect), effect.verdict, smallest)
    for quality in comparison.qualities:
        if quality.group == group.name:
            bests = (_number(one.metric_mean) for one in sides)
            yield (f"Best {comparison.metric}", *bests, _gained(quality), quality.verdict, "")


def notes(comparison: Comparison) -> list[str]:
    """Return sentences that explain how the figures were computed."""
    lines = []
    bases = {effect.basis for effect in comparison.effects} - {None}
    if "blocks" in bases:
        lines.append(
            "Each side has one run: the intervals are computed from blocks of about ten seconds "
            "within each run. They do not include the differences between repeated runs."
        )
    elif not bases:
        lines.append(
            "A group has only one run, so there are no intervals. Repeat the run to "
            "measure how much runs differ."
        )
    if "pairs" in bases:
        lines.append("Runs are compared in pairs, in the order in which they were made or given.")
    asked = sum(effect.p is not None for effect in comparison.effects)
    if asked > 1:
        lines.append(f"The verdicts are corrected for the {asked} comparisons made at once (Holm).")
    if any(effect.systematic for effect in comparison.effects):
        lines.append(
            "Intervals of energy include systematic errors that do not cancel: those of "
            "different cards, polled power readings, imported logs and estimates."
        )
    if comparison.target is not None:
        way = "at most" if comparison.direction == "lower" else "at least"
        lines.append(f"The target is {comparison.metric} of {way} {_number(comparison.target)}.")
    return lines


def _gained(quality: Quality) -> str:
    """Format the difference of the metric and its interval; positive values are better."""
    if quality.low is None or quality.high is None:
        return f"{quality.difference:+.3g}"
    return f"{quality.difference:+.3g} ({quality.low:+.3g} to {quality.high:+.3g})"


def _number(value: float | None) -> str:
    return formatting.UNKNOWN if value is None else f"{value:.5g}"
