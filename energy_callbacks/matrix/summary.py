"""Writes the summary of a matrix: as an HTML page, as JSON, and to the terminal."""

import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from energy_callbacks.accounting.journal import redaction
from energy_callbacks.core import formatting
from energy_callbacks.core.atomic_files import write
from energy_callbacks.core.units import JOULES_PER_WATT_HOUR
from energy_callbacks.matrix.attempts import Results
from energy_callbacks.matrix.plan import MatrixPlan
from energy_callbacks.matrix.rows import ConfigurationRow, MatrixTable, read_table
from energy_callbacks.matrix.verdict import MatrixVerdict, verdict
from energy_callbacks.report.charts.drawing import Chart, energy_unit, panels, short_name
from energy_callbacks.report.charts.palette import BLUES, INK

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

PAGE = "matrix.html"
# Width of the printed table if the output is not a terminal, in characters.
_FILE_COLUMNS: Final = 200
# Fields of ``ConfigurationRow`` that the JSON file contains under the same names.
_FIGURES: Final = (
    "energies_j",
    "j_per_sample",
    "duration_s",
    "peak_memory_bytes",
    "mean_memory_bytes",
    "metric",
)
# Height of one row of the chart, and of the space above and below the rows, in inches.
_ROW_IN, _FRAME_IN = 0.34, 0.9


def conclude(plan: MatrixPlan, results: Results, *, as_json: bool = False) -> int:
    """Write ``matrix.html``, ``matrix.json`` and the files of the comparison; print the results.

    Args:
        plan: the jobs.
        results: the results folder.
        as_json: whether the results are printed as in ``matrix.json``, instead of as a table.

    Returns:
        1 if a job has failed, otherwise 0.
    """
    table = read_table(plan, results)
    answer = verdict(plan, table)
    order = [*answer.costs_j, *(row.name for row in table.rows)]
    table = replace(table, rows=sorted(table.rows, key=lambda row: order.index(row.name)))
    if answer.comparison is not None:
        answer.comparison.save(results.folder)
    content = _as_json(plan, table, answer)
    write(results.folder / "matrix.json", content)
    write(results.folder / PAGE, _page(plan, table, answer, results.folder))
    if as_json:
        sys.stdout.write(content)
    else:
        _print(plan, table, answer, results.folder / PAGE)
    return int(any(row.failed for row in table.rows))


def heads(plan: MatrixPlan, table: MatrixTable, answer: MatrixVerdict) -> list[str]:
    """Return the column headings of the table."""
    scope = "GPU energy" if table.scope == "gpu" else "energy"
    to_target = [] if answer.target is None else [f"to {answer.target:.4g}"]
    metric = [plan.metric] if plan.metric else []
    figures = ["per sample", "time", "peak memory", "mean memory"]
    return [*plan.parameters, *to_target, scope, *figures, *metric, "runs"]


def cells(plan: MatrixPlan, row: ConfigurationRow, answer: MatrixVerdict) -> list[str]:
    """Return the cells of one row as text, in the order of ``heads``."""
    known = formatting.or_dash
    cost_j = known(answer.costs_j.get(row.name), formatting.energy)
    failed = f", {len(row.failed)} failed" if row.failed else ""
    shown = [
        *row.parameters.values(),
        *([] if answer.target is None else [cost_j]),
        known(row.energy_j, formatting.energy),
        known(row.j_per_sample, formatting.joules),
        known(row.duration_s, formatting.duration),
        known(row.peak_memory_bytes, formatting.size),
        known(row.mean_memory_bytes, formatting.size),
        *([known(row.metric, formatting.significant)] if plan.metric else []),
        f"{len(row.done)} of {plan.repeats}{failed}",
    ]
    return [formatting.one_line(text) for text in shown]


def _print(plan: MatrixPlan, table: MatrixTable, answer: MatrixVerdict, page: Path) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    rich_table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in heads(plan, table, answer):
        rich_table.add_column(
            name, justify="left" if name in plan.parameters else "right", no_wrap=True
        )
    for row in table.rows:
        rich_table.add_row(*map(Text, cells(plan, row, answer)))
    # If the output is not a terminal, the lines may be long, so that no cell is cut off.
    width = None if sys.stdout.isatty() else _FILE_COLUMNS
    console = Console(highlight=False, emoji=False, width=width)
    console.print(rich_table)
    caveats = answer.comparison.caveats if answer.comparison is not None else ()
    for line in (answer.sentence, *table.notes, *(one.message for one in caveats), str(page)):
        console.print(line, markup=False, soft_wrap=True)


def _page(plan: MatrixPlan, table: MatrixTable, answer: MatrixVerdict, folder: Path) -> str:
    from energy_callbacks.compare import page
    from energy_callbacks.report.render import html

    chart = Chart(name="energies", title="Energy of each run", draw=energies_figure)
    details = {} if answer.comparison is None else page.content(answer.comparison)
    return html.template("matrix.html").render(
        {"comparison": None, **details},
        plan=plan,
        answer=answer,
        remarks=table.notes,
        heads=heads(plan, table, answer),
        rows=[(row, cells(plan, row, answer)) for row in table.rows],
        picture=html.svg(chart, table, 9.4, chart.name),
        place=lambda path: quote(path.relative_to(folder).as_posix()),
        command=_command(plan),
    )


def _command(plan: MatrixPlan) -> str:
    """Return the command of a plan without secrets; as the user wrote it, if it has none."""
    words = redaction.words(plan.words)
    is_as_written = isinstance(plan.command, str) and words == list(plan.words)
    return str(plan.command) if is_as_written else shlex.join(words)


def energies_figure(table: MatrixTable, *, width_in: float = 9.4) -> "Canvas | None":
    """Draw the energy of each job as a point, in one row per configuration.

    A vertical bar marks the geometric mean of each row.

    Returns:
        The figure; ``None`` if no energy is known.
    """
    rows = [row for row in table.rows if row.energy_j is not None]
    if not rows:
        return None
    scale_j, unit = energy_unit(max(max(row.energies_j) for row in rows))
    with panels(width_in, _FRAME_IN + _ROW_IN * len(rows)) as (canvas, [axes]):
        for place, row in enumerate(rows):
            values = [energy_j / scale_j for energy_j in row.energies_j]
            axes.plot(values, [place] * len(values), "o", color=BLUES[0], ms=5.0, alpha=0.75)
            assert row.energy_j is not None
            axes.plot([row.energy_j / scale_j] * 2, [place - 0.3, place + 0.3], color=INK, lw=1.6)
        axes.set_yticks(range(len(rows)), [short_name(row.name, 48) for row in rows])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_xlim(left=0.0)
        scope = "GPU energy" if table.scope == "gpu" else "energy"
        axes.set_xlabel(f"{scope} of a run ({unit}); bars are means")
    return canvas


def _as_json(plan: MatrixPlan, table: MatrixTable, answer: MatrixVerdict) -> str:
    content = {
        "name": plan.name,
        "answer": answer.sentence,
        "is_real": answer.is_real,
        "scope": table.scope,
        "ranked_by": answer.quantity,
        "target": answer.target,
        "notes": list(table.notes),
        "configurations": [
            {
                "parameters": dict(row.parameters),
                "cost_j": answer.costs_j.get(row.name),
                "energy_j": row.energy_j,
                "energy_wh": None if row.energy_j is None else row.energy_j / JOULES_PER_WATT_HOUR,
                **{name: getattr(row, name) for name in _FIGURES},
                "finished": len(row.done),
                "failed": len(row.failed),
                "missing": row.missing,
                "folders": [str(outcome.folder) for _, outcome in row.done],
            }
            for row in table.rows
        ],
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"
