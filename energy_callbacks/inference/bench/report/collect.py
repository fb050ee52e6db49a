"""Reads the finished runs of a results folder, for the summary and the curves."""

from collections.abc import Iterable, Mapping, Sequence

from energy_callbacks.inference.bench import rows
from energy_callbacks.inference.bench.benchmark import DeviceOf
from energy_callbacks.inference.bench.report.curves import Curves
from energy_callbacks.inference.bench.report.figures import Figures, figures
from energy_callbacks.inference.bench.report.summary import Finished
from energy_callbacks.inference.bench.results import Results
from energy_callbacks.inference.bench.rows import Row
from energy_callbacks.inference.bench.runs import Run
from energy_callbacks.inference.bench.tasks import Task


def finished(
    todo: Sequence[Run],
    device_of: DeviceOf,
    results: Results,
    errors: Mapping[Run, str],
) -> list[Finished]:
    """Return the figures of all runs by task and algorithm.

    Args:
        todo: the runs to read; those without a file are left out.
        device_of: returns the GPU of a task.
        results: the results folder.
        errors: messages of the runs that failed.

    Raises:
        ValueError: if a file is damaged.
    """
    found = []
    for task, algorithm in dict.fromkeys((one.task, one.algorithm) for one in todo):
        mine = sorted(
            (one for one in todo if (one.task, one.algorithm) == (task, algorithm)),
            key=lambda one: one.seed,
        )
        known = {
            one.seed: read for one in mine if (read := _rows(one, device_of, results)) is not None
        }
        found.append(
            Finished(
                task=task,
                algorithm=algorithm,
                source=device_of(task).source,
                by_seed={seed: _figures(each, task, device_of) for seed, each in known.items()},
                errors=tuple(errors[one] for one in mine if one in errors),
                degraded=_degraded(known.values()),
            )
        )
    return found


def curves(todo: Iterable[Run], device_of: DeviceOf, results: Results) -> dict[Task, Curves]:
    """Return the curves of the finished runs with seed 0, by task."""
    found: dict[Task, dict[str, list[Row]]] = {}
    for run in sorted((one for one in todo if one.seed == 0), key=lambda one: one.task.number):
        read = _rows(run, device_of, results)
        if read is not None:
            found.setdefault(run.task, {})[run.algorithm] = read
    return {
        task: Curves(rows=by_algorithm, best_per_s=_best(task, device_of))
        for task, by_algorithm in found.items()
    }


def _best(task: Task, device_of: DeviceOf) -> dict[float, float]:
    device = device_of(task)
    known = {cap_w: device.best_per_s(task, cap_w) for _, cap_w in task.schedule}
    return {cap_w: value for cap_w, value in known.items() if value is not None}


def _rows(run: Run, device_of: DeviceOf, results: Results) -> list[Row] | None:
    file = run.file(device_of(run.task).label)
    if not results.is_finished(file):
        return None
    found = rows.read(results.folder / file)
    if len(found) != run.task.iterations:
        raise ValueError(
            f"{results.folder / file} has {len(found)} rows, and the run has "
            f"{run.task.iterations}; remove the file, and add --resume to run it again"
        )
    return found


def _degraded(runs: Iterable[Sequence[Row]]) -> str:
    """Return all different texts ``degraded`` of the windows, joined."""
    texts = dict.fromkeys(row.degraded for read in runs for row in read if row.degraded)
    return "; ".join(texts)


def _figures(read: Sequence[Row], task: Task, device_of: DeviceOf) -> Figures:
    return figures(read, lambda cap_w: device_of(task).best_per_s(task, cap_w))
