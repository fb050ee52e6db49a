"""Writes the summary of a benchmark: as CSV, as JSON, and as HTML pages.

``bench.html`` has the tables of all tasks. Each task has a page with the curves of all controllers.
The pages contain everything that they show, and run no scripts.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from energy_callbacks.core.atomic_files import write
from energy_callbacks.inference.bench.report import summary, tables
from energy_callbacks.inference.bench.report.curves import CHARTS, Curves
from energy_callbacks.inference.bench.report.summary import Summary, SummaryRow
from energy_callbacks.inference.bench.tasks import Task
from energy_callbacks.report.render.html import drawn, template

PAGE: Final = "bench.html"
_FOLDER: Final = "tasks"


def save(folder: Path, found: Summary, curves: Mapping[Task, Curves]) -> list[Path]:
    """Write ``summary.csv``, ``summary.json``, ``bench.html`` and a page per task.

    Args:
        folder: the results folder.
        found: the summary.
        curves: the curves of each task that has a finished run.

    Returns:
        The paths of the files.
    """
    files = {
        "summary.csv": summary.as_csv(found),
        "summary.json": summary.as_json(found),
        PAGE: overview(found, curves),
    }
    for task, one in curves.items():
        files[f"{_FOLDER}/{task.name}.html"] = task_page(task, found, one)
    for name, content in files.items():
        write(folder / name, content)
    return [folder / name for name in files]


def overview(found: Summary, curves: Mapping[Task, Curves]) -> str:
    """Return the page with all tasks."""
    every = list(dict.fromkeys(row.task for row in found.rows))
    overall = {
        "title": "All tasks that every algorithm has finished",
        "link": "",
        "head": tables.heads(is_overall=True),
        "rows": [tables.overall_cells(row) for row in found.overall],
        "notes": [],
    }
    each = [_table(task, found, is_linked=task in curves) for task in every]
    return _page(
        found.rows,
        title=f"{len(every)} task{'' if len(every) == 1 else 's'}",
        facts=[],
        back="",
        tables=[overall, *each] if len(every) > 1 and found.overall else each,
        charts=[],
    )


def task_page(task: Task, found: Summary, curves: Curves) -> str:
    """Return the page of a task, with the curves of all controllers."""
    rows = [row for row in found.rows if row.task == task]
    return _page(
        rows,
        title=tables.task_text(task),
        facts=["curves: seed 0, one point per window"],
        back=f"../{PAGE}",
        tables=[_table(task, found, is_linked=False)],
        charts=drawn(curves, CHARTS),
    )


def _page(rows: Sequence[SummaryRow], **content: Any) -> str:
    is_simulated = any(row.source == "simulated" for row in rows)
    notes = [*tables.NOTES, tables.OPTIMUM if is_simulated else tables.NO_OPTIMUM]
    return template("bench.html").render(is_simulated=is_simulated, notes=notes, **content)


def _table(task: Task, found: Summary, *, is_linked: bool) -> dict[str, Any]:
    rows = [row for row in found.rows if row.task == task]
    return {
        "title": tables.task_text(task),
        "link": f"{_FOLDER}/{task.name}.html" if is_linked else "",
        "head": tables.heads(),
        "rows": [tables.cells(row) for row in rows],
        "notes": [note for row in rows for note in tables.notes(row)],
    }
