"""Formats a comparison as LaTeX: groups, changes with the statistics of the test, and methods."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Final

from energy_callbacks.compare import text
from energy_callbacks.compare.model import Comparison, Group
from energy_callbacks.report.analysis.embodied import Embodied
from energy_callbacks.report.model.schema import EnergyReport
from energy_callbacks.report.render.paper import bibliography, rows, tex
from energy_callbacks.report.render.paper.document import HEADER, paragraph
from energy_callbacks.report.render.paper.methods import Sentence, sentences

Groups = Mapping[str, Sequence[EnergyReport]]
# How intervals and p-values are computed, by the basis of an effect (see ``statistics.py``).
_TESTS: Final = {
    "runs": "a bootstrap over runs",
    "pairs": "a bootstrap over pairs of runs",
    "blocks": "a bootstrap over blocks of time within two single runs",
}
# Width of all columns of groups together, as a share of the width of a line.
_WIDTH: Final = 0.55
# Widths of the columns of changes after the first.
_CHANGE_WIDTHS: Final = (0.12, 0.12, 0.17, 0.1, 0.13)


def latex(comparison: Comparison, groups: Groups, *, embodied: Embodied | None = None) -> str:
    """Return a table of the groups, a table of the changes, and a paragraph on the methods.

    Args:
        comparison: the comparison.
        groups: reports of the runs of each group, in the order of the comparison.
        embodied: embodied emissions of the hardware of one run; ``None`` to state that they are not
            included.
    """
    tables = [
        _groups(groups, embodied),
        *(_changes(comparison, group) for group in comparison.groups[1:]),
    ]
    found = [*statistics(comparison), *measurement(groups, embodied)]
    return HEADER + "\n".join([*tables, paragraph(found)])


def bibtex(comparison: Comparison, groups: Groups, *, embodied: Embodied | None = None) -> str:
    """Return the BibTeX entries that ``latex`` cites; the arguments are the same."""
    keys = [key for one in measurement(groups, embodied) for key in one.keys]
    first = groups[comparison.groups[0].name][0]
    return bibliography.bibtex(keys, first.tool_version)


def _groups(groups: Groups, embodied: Embodied | None) -> str:
    """Return the table with a column for each group."""
    columns = tex.column(_WIDTH / len(groups)) * len(groups)
    numbers = [{row.name: row for row in rows.amounts(runs, embodied)} for runs in groups.values()]
    texts = [{row.name: row for row in rows.conditions(runs)} for runs in groups.values()]
    head = ("", *map(tex.ragged, groups))
    blocks = [[head], _side_by_side(numbers), _side_by_side(texts)]
    caption = "Energy of the groups: means of the runs, with 95 % intervals."
    return tex.table(caption, "tab:groups", f"l{columns}", blocks)


def _side_by_side(found: Sequence[Mapping[str, rows.PaperRow]]) -> list[tuple[str, ...]]:
    names = dict.fromkeys(name for one in found for name in one)
    return [(tex.escaped(name), *(_cell(one.get(name)) for one in found)) for name in names]


def _cell(row: rows.PaperRow | None) -> str:
    if row is None:
        return "-"
    return tex.ragged(f"{row.value} ({row.interval})" if row.interval else row.value)


def _changes(comparison: Comparison, group: Group) -> str:
    """Return the table of the effects of a group, and of its metric."""
    first = comparison.groups[0]
    effects = [one for one in comparison.effects if one.group == group.name]
    heads = (first.name, group.name, "Change (95 %)", "p (Holm)", "Verdict")
    body = [
        (*row[:4], _p_value(effect.p_holm if effect else None), row[4])
        for row, effect in zip_longest(text.rows(comparison, group), effects)
    ]
    cells = [(tex.escaped(row[0]), *map(tex.ragged, row[1:])) for row in body]
    caption = f"Change of {group.name} against {first.name}: geometric means of the runs."
    label = f"tab:change{comparison.groups.index(group)}"
    columns = "l" + "".join(map(tex.column, _CHANGE_WIDTHS))
    head = ("", *map(tex.ragged, heads))
    return tex.table(caption, label, columns, [[head], cells], is_small=True)


def _p_value(p: float | None) -> str:
    if p is None:
        return "-"
    return f"{p:.3f}" if p >= 0.001 else "< 0.001"


def statistics(comparison: Comparison) -> Iterator[Sentence]:
    """Yield the sentences on the test and on the limits of its conclusions."""
    tests = dict.fromkeys(_TESTS[one.basis] for one in comparison.effects if one.basis)
    if tests:
        yield Sentence(
            "Changes are ratios of geometric means; their 95 % intervals and two-sided p-values "
            f"are computed by {' or '.join(tests)}, with a correction for few runs, and p-values "
            "are adjusted for all quantities by Holm's method"
        )
    for note in (*text.notes(comparison), *(one.message for one in comparison.caveats)):
        yield Sentence(note.rstrip("."))


def measurement(groups: Groups, embodied: Embodied | None = None) -> Iterator[Sentence]:
    """Yield the sentences on the measurement of all groups."""
    reports = [report for runs in groups.values() for report in runs]
    yield from sentences(reports, embodied, [len(runs) for runs in groups.values()])
