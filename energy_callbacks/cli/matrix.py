"""``energy-callbacks matrix``: parameters times repeats of any command, measured and compared."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self, get_args

from energy_callbacks.core.config import is_disabled
from energy_callbacks.matrix import job_manifest, summary, toml_file
from energy_callbacks.matrix.attempts import Outcome, Results
from energy_callbacks.matrix.engines import make
from energy_callbacks.matrix.engines.local import LocalEngine
from energy_callbacks.matrix.engines.protocol import Engine
from energy_callbacks.matrix.naming import counted
from energy_callbacks.matrix.plan import EngineName, MatrixJob, MatrixPlan

if TYPE_CHECKING:
    from rich.progress import Progress

HELP = "measure a command with all combinations of some parameters, repeatedly, and compare them"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("file", type=Path, metavar="FILE.toml", help="what to run; see the docs")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="results folder; what has ended well in it is not run again; default: "
        "energy_runs/NAME beside the file",
    )
    parser.add_argument(
        "--engine", choices=get_args(EngineName), help="instead of the one in the file"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print the jobs in their order, and run nothing"
    )
    parser.add_argument(
        "--collect", action="store_true", help="write the page of what is there, and run nothing"
    )
    parser.add_argument("--task", type=int, help=argparse.SUPPRESS)  # FILE is job_manifest.write's


def run(arguments: argparse.Namespace) -> int:
    """Run what is missing, write the page, print the table."""
    if is_disabled():
        raise ValueError("ENERGY_CALLBACKS_DISABLED is set, so nothing would be measured; unset it")
    if arguments.task is not None:
        return _run_task(arguments.file, arguments.task)
    plan, options = toml_file.load(arguments.file, arguments.engine)
    results = _results(plan, arguments.out)
    engine = make(options, results)
    jobs = plan.jobs()
    if arguments.dry_run:
        _preview(jobs, results)
        print(engine.preview(_missing(jobs, results)), end="")
        return 0
    if arguments.collect:
        return summary.conclude(plan, results)
    with results.locked():
        stopped = _run_missing(engine, results, jobs)
        summary.conclude(plan, results)
        left = _missing(jobs, results)
        is_complete = not left or len(engine.queued(left)) == len(left)
    return int(not is_complete) if stopped is None else 128 + stopped


def _run_missing(engine: Engine, results: Results, jobs: Sequence[MatrixJob]) -> int | None:
    """Run what has not ended well and is not on its way; the signal that ended it early."""
    if count := results.strangers(jobs):
        print(
            f"energy-callbacks matrix: {results.folder} holds {counted(count)} not in the file, "
            "which stay as they are and out of the comparison",
            file=sys.stderr,
        )
    missing = _missing(jobs, results)
    queued = engine.queued(missing)
    todo = [job for job in missing if job not in queued]
    for job in todo:
        results.check_free(job)  # before any other begins
    with _Telling(len(jobs), len(jobs) - len(todo)) as told:
        if queued:
            told.said(f"waiting or running: {counted(len(queued))}; call again to collect")
        return engine.run(todo, told) if todo else None


def _results(plan: MatrixPlan, out: Path | None) -> Results:
    folder = out or plan.folder / "energy_runs" / plan.name
    options = [
        word
        for name, value in plan.energy.items()
        for word in (f"--{name.replace('_', '-')}", str(value))
    ]
    return Results(
        folder=folder.resolve(),
        run_options=(*options, *(["--graphs"] if plan.graphs else [])),
        cool_down_s=plan.cool_down_s,
        working_folder=plan.folder,
    )


def _missing(jobs: Sequence[MatrixJob], results: Results) -> list[MatrixJob]:
    """Those that have not ended well, in order."""
    found = [(job, results.outcome(job)) for job in jobs]
    return [job for job, outcome in found if outcome is None or not outcome.is_done]


def _preview(jobs: Sequence[MatrixJob], results: Results) -> None:
    import shlex

    for number, job in enumerate(jobs, 1):
        outcome = results.outcome(job)
        is_done = outcome is not None and outcome.is_done
        print(f"{number:4} {'done  ' if is_done else ''}{job}: {shlex.join(job.words)}")


def _run_task(file: Path, number: int) -> int:
    """One job that was handed on, on whatever device this process was given."""
    import time

    results, jobs = job_manifest.read(file)
    if not 0 <= number < len(jobs):
        raise ValueError(f"--task {number}: {file} has {len(jobs)} jobs, counted from 0")
    job = jobs[number]
    if not _missing([job], results):
        return 0  # put into the queue again after it had ended
    time.sleep(results.cool_down_s)
    with _Telling(1, 0) as told:
        stopped = LocalEngine(None, results).run([job], told)
    outcome = results.outcome(job)
    if stopped is not None or outcome is None or outcome.exit_code is None:
        return 128 + (stopped or 0)
    return outcome.exit_code % 256


class _Telling:
    """How jobs go: a bar in a terminal, else a line for each.

    Args:
        count: of all jobs.
        done: of them, before this call.
    """

    def __init__(self, count: int, done: int) -> None:
        self._count, self._done = count, done
        self._running: dict[Path, str] = {}
        self._bar: Progress | None = None

    def __enter__(self) -> Self:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        console = Console(stderr=True, highlight=False)
        if console.is_terminal and not console.is_dumb_terminal:
            # Without a thread of its own, which would take signals that are not for it.
            self._bar = Progress(
                MofNCompleteColumn(),
                BarColumn(),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.description}", markup=False),
                console=console,
                auto_refresh=False,
            )
            self._task = self._bar.add_task("", total=self._count, completed=self._done)
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def started(self, job: MatrixJob, place: str) -> None:
        """See ``protocol.JobListener``."""
        self._running[job.folder] = str(job)
        if self._bar is None:
            self.said(f"{job}: started on {place}")

    def ended(self, job: MatrixJob, outcome: Outcome) -> None:
        """See ``protocol.JobListener``."""
        self._running.pop(job.folder, None)
        self._done += 1
        took = (outcome.ended_unix_s or outcome.started_unix_s) - outcome.started_unix_s
        self.said(f"[{self._done}/{self._count}] {job}: {outcome.said}, {took:.0f} s")
        if not outcome.is_done:
            for line in outcome.last_lines():
                self.said(f"    {line}")

    def waiting(self) -> None:
        """See ``protocol.JobListener``."""
        if self._bar is not None:
            told = ", ".join(self._running.values()) or "cooling down"
            self._bar.update(self._task, completed=self._done, description=told, refresh=True)

    def said(self, line: str) -> None:
        """See ``protocol.JobListener``."""
        if self._bar is None:
            print(line, file=sys.stderr, flush=True)
        else:
            self._bar.console.print(line, markup=False)
