"""LaTeX of a training: a table of its energy and a methods paragraph; and the BibTeX entries."""

from typing import Final

from energy_callbacks.report.analysis.embodied import Embodied
from energy_callbacks.report.model.schema import EnergyReport
from energy_callbacks.report.render.paper import bibliography, repeats, rows, tex
from energy_callbacks.report.render.paper.methods import Sentence, sentences
from energy_callbacks.report.render.paper.repeats import Reports

HEADER: Final = (
    "% Needs \\usepackage[T1]{fontenc}, \\usepackage{booktabs} and \\usepackage{url}.\n"
    "% The BibTeX entries are the output of --bibtex.\n"
)
# Widths of the second and third column together, as a share of the width of a line.
_WIDTH: Final = 0.5


def latex(reports: EnergyReport | Reports, *, embodied: Embodied | None = None) -> str:
    """Return a table of booktabs with the energy of a training, and a methods paragraph.

    Args:
        reports: report of a run, or reports of several runs of the same training. For n runs, the
            table has means with 95 % intervals (Student's t).
        embodied: embodied emissions of the hardware; ``None`` to state that they are not included.

    Raises:
        ValueError: if there is no report, or if a run is given twice.
    """
    runs = repeats.checked(reports)
    head = [("", "Mean" if len(runs) > 1 else "Value", r"95\,\% interval")]
    numbers = [tuple(map(tex.escaped, row)) for row in rows.amounts(runs, embodied)]
    texts = [
        (tex.escaped(row.name), tex.across(row.value, 2, _WIDTH)) for row in rows.conditions(runs)
    ]
    name = runs[0].run.name
    plural = f", mean of {len(runs)} runs" if len(runs) > 1 else ""
    caption = f"Energy of the training{f' {name}' if name else ''}{plural}."
    table = tex.table(caption, "tab:energy", "lrr", [head, numbers, texts])
    return f"{HEADER}{table}\n{paragraph(list(sentences(runs, embodied)))}"


def paragraph(found: list[Sentence]) -> str:
    """Return sentences as LaTeX, one per line; names of sensors are long words."""
    lines = "".join(f"{tex.escaped(one.text)}{tex.cite(one.keys)}.\n" for one in found)
    return f"\\begin{{sloppypar}}\n{lines}\\end{{sloppypar}}\n"


def bibtex(reports: EnergyReport | Reports, *, embodied: Embodied | None = None) -> str:
    """Return the BibTeX entries of this package and of the sources that ``latex`` cites.

    Args:
        reports: as in ``latex``.
        embodied: as in ``latex``.

    Raises:
        ValueError: as ``latex``.
    """
    runs = repeats.checked(reports)
    keys = [key for one in sentences(runs, embodied) for key in one.keys]
    return bibliography.bibtex(keys, runs[0].tool_version)
