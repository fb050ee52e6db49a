"""Summary of a matrix: its page, its table as JSON, and the terminal output."""

import json
import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.parse import quote

from energy_callbacks.core import formatting
from energy_callbacks.core.atomic_files import write
from energy_callbacks.core.units import JOULES_PER_WATT_HOUR
from energy_callbacks.matrix.attempts import Results
from energy_callbacks.matrix.plan import MatrixPlan
from energy_callbacks.matrix.rows import ConfigurationRow, MatrixTable, table
from energy_callbacks.matrix.verdict import MatrixVerdict, verdict

PAGE = "matrix.html"
_FILE_COLUMNS: Final = 200


def conclude(plan: MatrixPlan, results: Results) -> int:
    """Write ``matrix.html``, ``matrix.json`` and the comparison's files; print the table.

    Returns:
        1 if a job has failed, else 0.
    """
    found = table(plan, results)
    answer = verdict(plan, found)
    found = replace(found, rows=sorted(found.rows, key=lambda row: _rank(row, answer)))
    if answer.comparison is not None:
        answer.comparison.save(results.folder)
    write(results.folder / "matrix.json", _as_json(plan, found, answer))
    write(results.folder / PAGE, _page(plan, found, answer, results.folder))
    _print(plan, found, answer, results.folder / PAGE)
    return int(any(row.failed for row in found.rows))


def _rank(row: ConfigurationRow, answer: MatrixVerdict) -> int:
    names = list(answer.costs_j)
    return names.index(row.name) if row.name in names else len(names)


def heads(plan: MatrixPlan, found: MatrixTable, answer: MatrixVerdict) -> list[str]:
    """Of the table's columns."""
    scope = "GPU energy" if found.scope == "gpu" else "energy"
    to_target = [] if answer.target is None else [f"to {answer.target:.4g}"]
    metric = [plan.metric] if plan.metric else []
    return [*plan.parameters, *to_target, scope, "per sample", "time", *metric, "runs"]


def cells(plan: MatrixPlan, row: ConfigurationRow, answer: MatrixVerdict) -> list[str]:
    """One row as it is shown."""

    def known(value: float | None, say: Callable[[float], str]) -> str:
        return "-" if value is None else say(value)

    to_target = [] if answer.target is None else [answer.costs_j.get(row.name)]
    shown = [
        *row.parameters.values(),
        *(known(cost_j, formatting.energy) for cost_j in to_target),
        known(row.energy_j, formatting.energy),
        known(row.j_per_sample, formatting.joules),
        known(row.duration_s, formatting.duration),
        *([known(row.metric, formatting.significant)] if plan.metric else []),
        f"{len(row.done)} of {plan.repeats}"
        + (f", {len(row.failed)} failed" if row.failed else ""),
    ]
    return [formatting.one_line(text) for text in shown]


def _print(plan: MatrixPlan, found: MatrixTable, answer: MatrixVerdict, page: Path) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    shown: RichTable = RichTable(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in heads(plan, found, answer):
        shown.add_column(name, justify="left" if name in plan.parameters else "right", no_wrap=True)
    for row in found.rows:
        shown.add_row(*(Text(cell) for cell in cells(plan, row, answer)))
    # If it goes to a file, nothing is cut off.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else _FILE_COLUMNS)
    console.print(shown)
    caveats = answer.comparison.caveats if answer.comparison is not None else ()
    for line in (answer.sentence, *found.notes, *(one.message for one in caveats), str(page)):
        console.print(line, markup=False, soft_wrap=True)


def _page(plan: MatrixPlan, found: MatrixTable, answer: MatrixVerdict, folder: Path) -> str:
    from energy_callbacks.compare import page
    from energy_callbacks.matrix.chart import energies_figure
    from energy_callbacks.report.charts.drawing import Chart
    from energy_callbacks.report.render import html

    chart = Chart(name="energies", title="Energy of each run", draw=energies_figure)
    details = {} if answer.comparison is None else page.content(answer.comparison)
    return html.template("matrix.html").render(
        {"comparison": None, **details},
        plan=plan,
        answer=answer,
        remarks=found.notes,
        heads=heads(plan, found, answer),
        rows=[(row, cells(plan, row, answer)) for row in found.rows],
        picture=html.svg(chart, found, 9.4, chart.name),
        place=lambda path: quote(path.relative_to(folder).as_posix()),
        command=plan.command if isinstance(plan.command, str) else shlex.join(plan.words),
    )


def _as_json(plan: MatrixPlan, found: MatrixTable, answer: MatrixVerdict) -> str:
    content = {
        "name": plan.name,
        "answer": answer.sentence,
        "is_real": answer.is_real,
        "scope": found.scope,
        "ranked_by": answer.quantity,
        "target": answer.target,
        "notes": list(found.notes),
        "configurations": [
            {
                "parameters": dict(row.parameters),
                "cost_j": answer.costs_j.get(row.name),
                "energy_j": row.energy_j,
                "energy_wh": None if row.energy_j is None else row.energy_j / JOULES_PER_WATT_HOUR,
                "energies_j": list(row.energies_j),
                "j_per_sample": row.j_per_sample,
                "duration_s": row.duration_s,
                "metric": row.metric,
                "finished": len(row.done),
                "failed": len(row.failed),
                "missing": row.missing,
                "folders": [str(folder) for folder in row.folders],
            }
            for row in found.rows
        ],
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"
