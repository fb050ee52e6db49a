"""The end of a matrix: its page, its table as JSON, and what the terminal says."""

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from energy_callbacks.matrix.plan import Plan
from energy_callbacks.matrix.rows import Row, Table, table
from energy_callbacks.matrix.tries import Results
from energy_callbacks.matrix.verdict import Verdict, compared, verdict
from energy_callbacks.report import words
from energy_callbacks.units import JOULES_PER_WATT_HOUR

PAGE = "matrix.html"


def conclude(plan: Plan, results: Results) -> int:
    """Write ``matrix.html`` and ``matrix.json``, print the table.

    Returns:
        1 where a job has failed, else 0.
    """
    found = table(plan, results)
    comparison = compared(plan, found, results.folder)
    answer = verdict(plan, found, comparison)
    results.folder.mkdir(parents=True, exist_ok=True)
    (results.folder / "matrix.json").write_text(_as_json(plan, found, answer), encoding="utf-8")
    page = results.folder / PAGE
    page.write_text(_page(plan, found, answer, results.folder, comparison), encoding="utf-8")
    _print(plan, found, answer, page)
    return int(any(row.failed for row in found.rows))


def heads(plan: Plan, found: Table) -> list[str]:
    """Of the table's columns."""
    scope = "GPU energy" if found.scope == "gpu" else "energy"
    metric = [plan.metric] if plan.metric else []
    return [*plan.parameters, scope, "per sample", "time", *metric, "runs", "failed"]


def cells(plan: Plan, row: Row) -> list[str]:
    """One row as it is shown."""

    def known(value: float | None, say: Callable[[float], str]) -> str:
        return "-" if value is None else say(value)

    shown = [
        *row.parameters.values(),
        known(row.energy_j, words.energy),
        known(row.j_per_sample, words.joules),
        known(row.duration_s, words.duration),
        *([known(row.metric, words.significant)] if plan.metric else []),
        f"{len(row.done)} of {plan.repeats}",
        str(len(row.failed) or "-"),
    ]
    return [words.one_line(text) for text in shown]


def _print(plan: Plan, found: Table, answer: Verdict, page: Path) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    shown: RichTable = RichTable(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in heads(plan, found):
        shown.add_column(name, justify="left" if name in plan.parameters else "right", no_wrap=True)
    for row in found.rows:
        shown.add_row(*(Text(cell) for cell in cells(plan, row)))
    console = Console(highlight=False)
    # Where it goes to a file, nothing is cut off.
    console.print(shown, crop=False, width=None if console.is_terminal else 200)
    for line in (answer.sentence, *found.notes, str(page)):
        console.print(line, markup=False, soft_wrap=True)


def _page(plan: Plan, found: Table, answer: Verdict, folder: Path, comparison: Any) -> str:
    from markupsafe import Markup

    from energy_callbacks.matrix.picture import energies_svg
    from energy_callbacks.report import html

    return html.template("matrix.html").render(
        plan=plan,
        answer=answer,
        notes=found.notes,
        heads=heads(plan, found),
        rows=[(row, cells(plan, row)) for row in found.rows],
        chart=Markup(energies_svg(found)),  # noqa: S704 - it escapes every text itself
        place=lambda path: path.relative_to(folder).as_posix(),
        comparison=comparison,
        command=plan.command if isinstance(plan.command, str) else shlex.join(plan.words),
    )


def _as_json(plan: Plan, found: Table, answer: Verdict) -> str:
    content = {
        "name": plan.name,
        "answer": answer.sentence,
        "is_real": answer.is_real,
        "scope": found.scope,
        "notes": list(found.notes),
        "configurations": [
            {
                "parameters": dict(row.parameters),
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
