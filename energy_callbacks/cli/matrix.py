"""``energy-callbacks matrix``: measures a command with all combinations of some parameters."""

import argparse
import shlex
import time
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import get_args

from energy_callbacks.accounting.journal import redaction
from energy_callbacks.cli.common import messages, options
from energy_callbacks.cli.common.messages import logger
from energy_callbacks.core.config import is_disabled
from energy_callbacks.core.extras import is_installed
from energy_callbacks.matrix import attempts, summary, toml_file
from energy_callbacks.matrix.attempts import Results
from energy_callbacks.matrix.engines.engine import Engine
from energy_callbacks.matrix.engines.local import LocalEngine
from energy_callbacks.matrix.plan import EngineName, MatrixJob, MatrixPlan, counted
from energy_callbacks.matrix.progress import JobProgress

HELP = "measure a command with all combinations of parameter values, and compare them"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add = parser.add_argument
    add(
        "file",
        type=Path,
        metavar="FILE.toml",
        help="command, parameters and number of repeats; see docs/matrix.md",
    )
    add(
        "--out",
        type=Path,
        metavar="DIR",
        help="results folder; jobs that have succeeded in it are not run again (default: "
        "energy_runs/NAME next to the file)",
    )
    add(
        "--engine",
        choices=get_args(EngineName),
        help="where the jobs run (default: the engine in the file)",
    )
    add(
        "--dry-run",
        action="store_true",
        help="print the jobs in the order in which they would run, and run nothing",
    )
    add(
        "--collect",
        action="store_true",
        help="write the results page of the jobs that have ended, and run nothing",
    )
    # Engines such as that for Slurm submit this command with --task N. It then runs only job N,
    # counted from 0, and FILE is a list of jobs that attempts.write_jobs has written.
    add("--task", type=int, help=argparse.SUPPRESS)
    options.add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the jobs that have not succeeded yet, write the results page, and print the results.

    With ``--dry-run``, the jobs are only printed. With ``--collect``, no job runs. With ``--task``,
    one job runs, and no page is written.

    Returns:
        The exit code. If a signal interrupted the jobs: 128 plus the number of the signal.
        Otherwise: 0 if each job has succeeded or is queued, 1 if not. With ``--collect``: 1 if a
        job has failed, 0 if not. With ``--dry-run``: 0. With ``--task``: see ``_run_task``.
    """
    if is_disabled():
        raise ValueError("ENERGY_CALLBACKS_DISABLED is set, so nothing can be measured; unset it")
    if arguments.task is not None:
        return _run_task(arguments.file, arguments.task)
    plan, engine = toml_file.load(arguments.file, arguments.engine)
    results = _results(plan, arguments.out)
    jobs = plan.jobs()
    if arguments.dry_run:
        _dry_run(engine, results, jobs, as_json=arguments.json)
        return 0
    if arguments.collect:
        return summary.conclude(plan, results, as_json=arguments.json)
    with results.locked():
        signal_number = _run_missing(engine, results, jobs)
        with options.until_reader_ends():
            summary.conclude(plan, results, as_json=arguments.json)
        missing = results.missing(jobs)
        is_complete = not missing or len(engine.queued(missing, results)) == len(missing)
    return int(not is_complete) if signal_number is None else 128 + signal_number


def _results(plan: MatrixPlan, out: Path | None) -> Results:
    folder = out or plan.folder / "energy_runs" / plan.name
    energy = ((f"--{name.replace('_', '-')}", str(value)) for name, value in plan.energy.items())
    draws = plan.graphs and is_installed("matplotlib")
    return Results(
        folder=folder.resolve(),
        run_options=[*chain.from_iterable(energy), *(["--graphs"] if draws else [])],
        cool_down_s=plan.cool_down_s,
        working_folder=plan.folder,
    )


def _dry_run(engine: Engine, results: Results, jobs: Sequence[MatrixJob], *, as_json: bool) -> None:
    """Print the jobs, and what the engine would do."""
    missing = results.missing(jobs)
    plan = redaction.text(engine.preview(missing, results))
    if not as_json:
        _preview(jobs, results)
        print(plan, end="")
        return
    lines = [
        {
            "job": str(job),
            "command": redaction.words(job.words),
            "has_succeeded": job not in missing,
        }
        for job in jobs
    ]
    options.print_json({"jobs": lines, "engine": plan})


def _preview(jobs: Sequence[MatrixJob], results: Results) -> None:
    missing = results.missing(jobs)
    for number, job in enumerate(jobs, 1):
        done = "" if job in missing else "done  "
        print(f"{number:4} {done}{job}: {shlex.join(redaction.words(job.words))}")


def _run_missing(engine: Engine, results: Results, jobs: Sequence[MatrixJob]) -> int | None:
    """Run the jobs that have not succeeded and are not queued.

    Returns:
        The number of the signal that interrupted the jobs; ``None`` if they were not interrupted.
    """
    if count := results.strangers(jobs):
        logger.info(
            "energy-callbacks matrix: %s contains %s that the file does not describe; they are "
            "kept, but not compared",
            *(results.folder, counted(count)),
        )
    missing = results.missing(jobs)
    queued = engine.queued(missing, results)
    todo = [job for job in missing if job not in queued]
    for job in todo:
        results.check_free(job)  # every job is checked before the first job starts
    done = len(jobs) - len(todo)
    with JobProgress(len(jobs), done, is_quiet=messages.is_quiet()) as progress:
        if queued:
            progress.say(
                f"{counted(len(queued))} waiting or running; run this command again for the results"
            )
        return engine.run(todo, results, progress) if todo else None


def _run_task(file: Path, number: int) -> int:
    """Run one job of a file that ``attempts.write_jobs`` has written.

    Args:
        file: path of the file.
        number: index of the job in the file, counted from 0.

    Returns:
        The exit code of the job's command, as a number from 0 to 255; 0 if the job had already
        succeeded. If a signal interrupted the job, 128 plus the number of the signal. 128 if the
        outcome is not known.

    Raises:
        ValueError: if the file cannot be used, or contains no job of this number.
    """
    results, jobs = attempts.read_jobs(file)
    if not 0 <= number < len(jobs):
        raise ValueError(f"--task must be from 0 to {len(jobs) - 1} for {file}, got {number}")
    job = jobs[number]
    if not results.missing([job]):
        return 0  # the scheduler has started the job again, although it had succeeded
    time.sleep(results.cool_down_s)
    with JobProgress(1, 0, is_quiet=messages.is_quiet()) as progress:
        signal_number = LocalEngine(gpus=None).run([job], results, progress)
    outcome = results.outcome(job)
    if signal_number is not None or outcome is None or outcome.exit_code is None:
        return 128 + (signal_number or 0)
    return outcome.exit_code % 256
