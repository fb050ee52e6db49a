"""Summarises the runs of a benchmark: the figures of each algorithm on each task, over all seeds.

Intervals contain the mean of many seeds with a probability of 95 %. They are those of differences
in ``compare/statistics.py``, and need at least two seeds.
"""

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from statistics import mean
from typing import Any, Final

from energy_callbacks.compare import statistics
from energy_callbacks.inference.bench.report.figures import Figures
from energy_callbacks.inference.bench.tasks import Task
from energy_callbacks.inference.records import Source

NAMES: Final = tuple(field.name for field in fields(Figures))
_TASK: Final = ("task", "gpu", "model", "dataset", "mode", "caps_w")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanOfSeeds:
    """The mean of a figure over seeds. ``None`` is an unknown value.

    Attributes:
        value: the mean; ``None`` if the figure of a seed is not known.
        low: lower end of the 95 % interval; ``None`` with one seed.
        high: upper end of the interval.
        unknown: number of seeds whose figure is not known.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    unknown: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryRow:
    """An algorithm on a task.

    Attributes:
        task: the task.
        algorithm: name of the controller.
        source: where the figures come from.
        seeds: number of finished runs.
        errors: messages of the runs that failed.
        degraded: how the controller works without some of its settings; empty if it has all.
        figures: by name, as in ``Figures``.
    """

    task: Task
    algorithm: str
    source: Source
    seeds: int
    errors: tuple[str, ...]
    degraded: str
    figures: Mapping[str, MeanOfSeeds]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmRow:
    """An algorithm on all tasks that every algorithm has finished with every seed.

    Attributes:
        algorithm: name of the controller.
        tasks: number of these tasks.
        figures: by name; each seed has the mean over the tasks, and intervals are over seeds.
    """

    algorithm: str
    tasks: int
    figures: Mapping[str, MeanOfSeeds]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The summary of a benchmark.

    Attributes:
        rows: by task, then by algorithm.
        overall: one row for each algorithm.
    """

    rows: tuple[SummaryRow, ...]
    overall: tuple[AlgorithmRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The figures of all seeds of an algorithm on a task.

    Attributes:
        task: the task.
        algorithm: name of the controller.
        source: where the figures come from.
        by_seed: figures by seed.
        errors: messages of the runs that failed.
        degraded: how the controller works without some of its settings.
    """

    task: Task
    algorithm: str
    source: Source
    by_seed: Mapping[int, Figures]
    errors: tuple[str, ...] = ()
    degraded: str = ""


def summary(results: Sequence[Finished]) -> Summary:
    """Return the summary of the results of all algorithms on all tasks."""
    rows = tuple(
        SummaryRow(
            task=one.task,
            algorithm=one.algorithm,
            source=one.source,
            seeds=len(one.by_seed),
            errors=one.errors,
            degraded=one.degraded,
            figures=_over_seeds([asdict(each) for each in one.by_seed.values()]),
        )
        for one in sorted(results, key=lambda one: one.task.number)
    )
    return Summary(rows=rows, overall=tuple(_overall(results)))


def mean_of_seeds(values: Sequence[float | None]) -> MeanOfSeeds:
    """Return the mean of the values of all seeds, with its interval.

    >>> mean_of_seeds([2.0, None])
    MeanOfSeeds(value=None, low=None, high=None, unknown=1)
    """
    known = [one for one in values if one is not None]
    if not known or len(known) < len(values):
        return MeanOfSeeds(value=None, unknown=len(values) - len(known))
    interval = statistics.difference([0.0] * len(known), known, in_pairs=True)
    low, high = interval if interval is not None else (None, None)
    return MeanOfSeeds(value=mean(known), low=low, high=high)


def _over_seeds(by_seed: Sequence[Mapping[str, float | None]]) -> dict[str, MeanOfSeeds]:
    return {name: mean_of_seeds([one[name] for one in by_seed]) for name in NAMES}


def _overall(results: Sequence[Finished]) -> Iterable[AlgorithmRow]:
    algorithms = list(dict.fromkeys(one.algorithm for one in results))
    by_task: dict[int, dict[str, Finished]] = {}
    for one in results:
        by_task.setdefault(one.task.number, {})[one.algorithm] = one
    seeds = sorted({seed for one in results for seed in one.by_seed})
    common = [
        row
        for row in by_task.values()
        if set(row) == set(algorithms) and all(sorted(one.by_seed) == seeds for one in row.values())
    ]
    for algorithm in algorithms if common else ():
        figures = [
            _over_tasks([asdict(row[algorithm].by_seed[seed]) for row in common]) for seed in seeds
        ]
        yield AlgorithmRow(algorithm=algorithm, tasks=len(common), figures=_over_seeds(figures))


def _over_tasks(by_task: Sequence[Mapping[str, float | None]]) -> dict[str, float | None]:
    means: dict[str, float | None] = {}
    for name in NAMES:
        known = [value for one in by_task if (value := one[name]) is not None]
        means[name] = mean(known) if len(known) == len(by_task) else None
    return means


def as_json(found: Summary) -> str:
    """Return the summary as JSON."""
    content = {
        "tasks": [_record(one) for one in found.rows],
        "overall": [
            {"algorithm": one.algorithm, "tasks": one.tasks, "figures": _figures(one.figures)}
            for one in found.overall
        ],
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def as_csv(found: Summary) -> str:
    """Return the rows of the summary as CSV: the mean and both ends of the interval of a figure."""
    text = io.StringIO()
    columns = [name for one in NAMES for name in (one, f"{one}_low", f"{one}_high")]
    head = (*_TASK, "algorithm", "source", "seeds", "failed", *columns, "degraded")
    writer = csv.DictWriter(text, head, lineterminator="\n")
    writer.writeheader()
    for row in found.rows:
        record = _record(row)
        cells = {
            name: value
            for figure, one in row.figures.items()
            for name, value in _cells(figure, one).items()
        }
        kept = {name: record[name] for name in (*_TASK, "algorithm", "source", "seeds", "degraded")}
        caps = json.dumps(record["caps_w"])
        writer.writerow({**kept, **cells, "caps_w": caps, "failed": len(row.errors)})
    return text.getvalue()


def _cells(name: str, one: MeanOfSeeds) -> dict[str, float | None]:
    return {name: one.value, f"{name}_low": one.low, f"{name}_high": one.high}


def _record(row: SummaryRow) -> dict[str, Any]:
    return {
        "task": row.task.number,
        "gpu": row.task.gpu,
        "model": row.task.model,
        "dataset": row.task.dataset,
        "mode": row.task.mode,
        "caps_w": [cap_w for _, cap_w in row.task.schedule],
        "algorithm": row.algorithm,
        "source": row.source,
        "seeds": row.seeds,
        "errors": list(row.errors),
        "degraded": row.degraded,
        "figures": _figures(row.figures),
    }


def _figures(found: Mapping[str, MeanOfSeeds]) -> dict[str, Any]:
    return {name: asdict(one) for name, one in found.items()}
