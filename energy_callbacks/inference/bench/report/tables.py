"""The cells of a summary as text, for the terminal and the pages."""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from energy_callbacks.core import formatting
from energy_callbacks.core.tables import aligned
from energy_callbacks.inference.bench.report.summary import (
    AlgorithmRow,
    MeanOfSeeds,
    Summary,
    SummaryRow,
)
from energy_callbacks.inference.bench.tasks import Task


class _Column(NamedTuple):
    """A column: its figure, its heading, and the text of values and of unknown values."""

    name: str
    head: str
    as_text: Callable[[float], str]
    unknown: str = "-"


def _percent(share: float) -> str:
    """Return a share in percent, which may exceed 100 %."""
    return f"{100.0 * share:.1f} %"


_COLUMNS: Final = (
    _Column("throughput_per_s", "samples/s", formatting.grouped),
    _Column("optimum_share", "of optimum", _percent),
    _Column("above_share", "time above cap", _percent),
    _Column("overshoot_w", "overshoot", formatting.power),
    _Column("settling_s", "settling", formatting.duration, "not settled"),
    _Column("j_per_request", "per request", formatting.joules),
)
# Columns that have a mean over tasks: the values of the others depend on the model.
_OVERALL: Final = ("optimum_share", "above_share", "overshoot_w", "settling_s")
NO_OPTIMUM: Final = (
    "The share of the optimum is not known: the optimum of a real GPU cannot be computed."
)
OPTIMUM: Final = (
    "The optimum is the best operating point that a search finds with the exact physics of the "
    "simulated GPU. It is not known for a real GPU."
)
_FIGURES: Final = (
    "Throughput is the mean of the second half of the windows. The share of the optimum and the "
    "time above the cap count windows from 5 s after the start and after each change of the cap; "
    "above the cap, a controller can have more than the optimum. "
    "Overshoot and energy per request count all windows. Settling is the longest time from a "
    "change of the cap until no window is above it or more than 5 % from its steady power."
)
_INTERVALS: Final = (
    "Brackets have 95 % intervals over seeds. They need two seeds, and are left out where both "
    "ends are shown as the same number."
)
NOTES: Final = (_FIGURES, _INTERVALS)


def task_text(task: Task) -> str:
    """Return a task as text, such as ``task 20: resnet50 (imagenet) on a100, 150 W``."""
    caps = " → ".join(f"{cap_w:g}" for _, cap_w in task.schedule)
    mode = ", training" if task.mode == "train" else ""
    return f"task {task.number}: {task.model} ({task.dataset}) on {task.gpu}{mode}, {caps} W"


def heads(*, is_overall: bool = False) -> list[str]:
    """Return the headings of the columns."""
    if is_overall:
        return ["algorithm", "tasks", *(one.head for one in _COLUMNS if one.name in _OVERALL)]
    return ["algorithm", *(one.head for one in _COLUMNS), "seeds"]


def cells(row: SummaryRow) -> list[str]:
    """Return the cells of an algorithm on a task."""
    failed = f", {len(row.errors)} failed" if row.errors else ""
    return [row.algorithm, *_values(row.figures), f"{row.seeds}{failed}"]


def overall_cells(row: AlgorithmRow) -> list[str]:
    """Return the cells of an algorithm on all tasks."""
    return [row.algorithm, str(row.tasks), *_values(row.figures, _OVERALL)]


def text(found: Summary) -> str:
    """Return the summary as text: a table for each task, and one for all tasks."""
    lines: list[str] = []
    for task in dict.fromkeys(row.task for row in found.rows):
        rows = [row for row in found.rows if row.task == task]
        label = ", simulated" if rows[0].source == "simulated" else ""
        lines += [f"{task_text(task)}{label}"]
        lines += aligned([heads(), *map(cells, rows)], "<>")
        lines += [f"  {note}" for row in rows for note in notes(row)]
        lines.append("")
    if len({row.task for row in found.rows}) > 1 and found.overall:
        lines.append("all tasks that every algorithm has finished")
        rows_overall = [heads(is_overall=True), *map(overall_cells, found.overall)]
        lines += [*aligned(rows_overall, "<>"), ""]
    is_simulated = any(row.source == "simulated" for row in found.rows)
    return "\n".join([*lines, OPTIMUM if is_simulated else NO_OPTIMUM])


def notes(row: SummaryRow) -> list[str]:
    """Return what a reader must know about a row."""
    degraded = [f"{row.algorithm}: {row.degraded}"] if row.degraded else []
    return [*degraded, *(f"{row.algorithm} failed: {one}" for one in dict.fromkeys(row.errors))]


def _values(figures: Mapping[str, MeanOfSeeds], names: tuple[str, ...] = ()) -> list[str]:
    return [_value(figures[one.name], one) for one in _COLUMNS if not names or one.name in names]


def _value(one: MeanOfSeeds, column: _Column) -> str:
    as_text = column.as_text
    if one.value is None:
        return column.unknown if one.unknown else "-"
    if one.low is None or one.high is None:
        return as_text(one.value)
    low, high = as_text(max(one.low, 0.0)), as_text(one.high)  # no figure can be negative
    return as_text(one.value) if low == high else f"{as_text(one.value)} [{low}, {high}]"
