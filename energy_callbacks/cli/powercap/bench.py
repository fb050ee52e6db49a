"""``energy-callbacks powercap bench``: compares controllers on tasks with power caps."""

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from energy_callbacks.cli.common import options
from energy_callbacks.cli.common.messages import logger
from energy_callbacks.cli.powercap import bench_gpu, cards
from energy_callbacks.core import formatting

if TYPE_CHECKING:
    from energy_callbacks.inference.bench.benchmark import Outcome
    from energy_callbacks.inference.bench.runs import Run
    from energy_callbacks.inference.bench.tasks import Task

HELP = "compare controllers on tasks with power caps, such as those of PctoDL's benchmark"
# Windows of a task with a fixed cap, and of every task with --quick: seven for each of three caps.
_ITERATIONS: Final = 60
_QUICK: Final = 21
_QUICK_POINTS: Final = 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the action's arguments."""
    add = parser.add_argument
    add(
        "--gpu",
        default="auto",
        metavar="GPU",
        help="NVML index or UUID of a GPU; sim:NAME for a simulated GPU, such as sim:a100; sim for "
        "the simulated GPU of each task; auto for the first GPU that CUDA may use (default: auto)",
    )
    _add_choices(parser)
    _add_lengths(parser)
    _add_switches(parser)
    add(
        "--out",
        type=Path,
        default=Path("bench"),
        metavar="DIR",
        help="results folder (default: bench)",
    )
    add(
        "--save-summary",
        action="store_true",
        help="also write summary.csv, summary.json, bench.html and a page with curves for each "
        "task to the results folder",
    )
    add(
        "--data",
        nargs="+",
        default=[],
        metavar="NAME=DIR",
        help="folder of the images of a data set, for a real GPU; NAME=synthetic for noise",
    )
    cards.add_consent(parser)


def _add_choices(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--algorithm", nargs="+", metavar="NAME", help="names of controllers (default: all)")
    add(
        "--tasks",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="TOML files of tasks (default: the published tasks, 1 to 30, and ours, from 101)",
    )
    add(
        "--task-id",
        nargs="+",
        type=int,
        default=[],
        metavar="N",
        help="numbers of the tasks (default: all tasks for the GPU)",
    )
    text = "only tasks with this number and higher ones"
    add("--start-from", type=int, metavar="N", help=text)


def _add_lengths(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--iterations",
        type=int,
        metavar="N",
        help=f"windows of a run; caps change at the same parts of it (default: {_ITERATIONS}, or "
        "the number in the task)",
    )
    text = "length of a window in seconds (default: 1)"
    add("--window", type=options.seconds, default=1.0, metavar="S", help=text)
    text = "runs of each algorithm on each task (default: 1)"
    add("--seeds", type=int, default=1, metavar="N", help=text)
    text = "windows of the profile of a model (default: 16)"
    add("--points", type=int, metavar="N", help=text)
    add(
        "--quick",
        action="store_true",
        help=f"check that everything works: {_QUICK} windows, profiles of {_QUICK_POINTS} windows",
    )


def _add_switches(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--interleave",
        action="store_true",
        help="run all algorithms on a task and seed, in random order, before the next seed "
        "(default: one algorithm after the other)",
    )
    text = "continue the results in DIR: make the runs that are not finished"
    add("--resume", action="store_true", help=text)
    text = "print the runs and the settings that they may change, and run nothing"
    add("--dry-run", action="store_true", help=text)


def run(arguments: argparse.Namespace) -> int:
    """Make all runs and print the summary; return 1 if a run failed, else 0."""
    from energy_callbacks.inference.bench import Benchmark
    from energy_callbacks.inference.bench.report import tables
    from energy_callbacks.inference.bench.report.summary import as_json
    from energy_callbacks.inference.bench.runs import runs
    from energy_callbacks.inference.bench.session import POINTS

    algorithms, gpu = _algorithms(arguments), bench_gpu.choose(arguments)
    tasks = _tasks(arguments, gpu)
    todo = runs(tasks, algorithms, arguments.seeds, interleave=arguments.interleave)
    if arguments.dry_run:
        _print_plan(arguments, todo, gpu)
        return 0
    usual = _QUICK_POINTS if arguments.quick else POINTS
    benchmark = Benchmark(
        arguments.out,
        gpu.device_of,
        gpu=gpu.label,
        window_s=arguments.window,
        points=usual if arguments.points is None else arguments.points,
    )
    result = benchmark.run(
        tasks,
        algorithms,
        seeds=arguments.seeds,
        interleave=arguments.interleave,
        resume=arguments.resume,
        save=arguments.save_summary,
        on_outcome=_Progress(len(todo)),
    )
    if arguments.json:
        options.print_json(json.loads(as_json(result.summary)))
    else:
        print(tables.text(result.summary))
    return int(bool(result.errors))


class _Progress:
    """Logs the outcome of each run."""

    def __init__(self, count: int) -> None:
        self._done, self._count = 0, count

    def __call__(self, one: "Outcome") -> None:
        self._done += 1
        state = "was finished before" if one.was_finished else "finished"
        text = f"failed: {one.error}" if one.error else state
        log = logger.warning if one.error else logger.info
        log("[%d/%d] %s: %s", self._done, self._count, one.run, text)


def _algorithms(arguments: argparse.Namespace) -> list[str]:
    """Return the names of the controllers.

    Raises:
        ValueError: if one is unknown.
    """
    from energy_callbacks.inference.control.controllers import CONTROLLERS

    known = list(CONTROLLERS)
    for name in arguments.algorithm or ():
        if name not in known:
            raise ValueError(f"there is no algorithm {name!r}; choose from {', '.join(known)}")
    return arguments.algorithm or known


def _tasks(arguments: argparse.Namespace, gpu: "bench_gpu.Gpu") -> "tuple[Task, ...]":
    """Return the tasks to run, with their numbers of iterations.

    Raises:
        ValueError: if there is no such task, or if one cannot run on the GPU.
    """
    from energy_callbacks.inference.bench import tasks

    if arguments.tasks is None:
        known = (*tasks.tasks(), *tasks.own_tasks())
    else:
        each = (one for path in arguments.tasks for one in tasks.read(path))
        known = tasks.ordered(each, ", ".join(map(str, arguments.tasks)))
    chosen = tasks.selected(known, numbers=arguments.task_id, start_from=arguments.start_from)
    if not arguments.task_id and arguments.tasks is None:
        chosen = gpu.suitable(chosen)
    for one in chosen:
        gpu.device_of(one).check(one)
    return tuple(_lasting(arguments, one) for one in chosen)


def _lasting(arguments: argparse.Namespace, task: "Task") -> "Task":
    given = arguments.iterations
    if given is not None and given < 1:
        raise ValueError(f"--iterations must be at least 1, got {given}")
    usual = _QUICK if arguments.quick else task.iterations or _ITERATIONS
    return task.lasting(usual if given is None else given)


def _print_plan(arguments: argparse.Namespace, todo: "Sequence[Run]", gpu: "bench_gpu.Gpu") -> None:
    """Print every run with its file, and the settings that may be changed; change nothing."""
    from energy_callbacks.inference.bench.report.tables import task_text
    from energy_callbacks.inference.bench.results import Results

    results = Results(arguments.out)
    files = [one.file(gpu.device_of(one.task).label) for one in todo]
    if arguments.json:
        options.print_json(
            [
                {
                    "task": one.task.as_json(),
                    "algorithm": one.algorithm,
                    "seed": one.seed,
                    "file": str(results.folder / file),
                    "is_finished": results.is_finished(file),
                }
                for one, file in zip(todo, files, strict=True)
            ]
        )
        return
    for number, (one, file) in enumerate(zip(todo, files, strict=True), start=1):
        state = " (finished)" if results.is_finished(file) else ""
        what = f"{task_text(one.task)}, {one.algorithm}, seed {one.seed}"
        print(f"[{number}/{len(todo)}] {what}: {results.folder / file}{state}")
    pairs = zip(todo, files, strict=True)
    left = [one for one, file in pairs if not results.is_finished(file)]
    seconds = math.fsum((one.task.iterations or 0) * arguments.window for one in left)
    ended = f", {len(todo) - len(left)} of them finished" if len(left) < len(todo) else ""
    print(f"{len(todo)} runs{ended}, at least {formatting.duration(seconds)} {gpu.time}")
    print(f"{gpu.changes}; nothing was run")
