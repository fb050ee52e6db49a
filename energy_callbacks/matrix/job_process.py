"""One job as a program of its own: ``energy-callbacks run`` around its command."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from energy_callbacks.core.config import RUN_DIR_VARIABLE
from energy_callbacks.matrix.attempts import OUTPUT, Results, goes_on
from energy_callbacks.matrix.plan import REPEAT, MatrixJob


class JobProcess:
    """A try of a job that has begun.

    Args:
        job: what to run.
        results: where it is measured into.
        environment: of the device that it is to use.

    Raises:
        Busy: if an older try of the job goes on.
    """

    def __init__(self, job: MatrixJob, results: Results, environment: Mapping[str, str]) -> None:
        self.job = job
        self._results = results
        self._folder = results.begin(job)
        self._process = launch(
            run_words(job, results, self._folder),
            folder=results.working_folder,
            environment=_environment({**job.environment, **environment}),
            output=self._folder / OUTPUT,
        )

    def signal(self, number: int) -> None:
        """Pass a signal on to the command."""
        self._process.send_signal(number)

    def ended(self) -> bool:
        """Whether it has ended; then that is noted in its folder."""
        code = self._process.poll()
        if code is None or (code < 0 and goes_on(self._folder, os.uname().nodename)):
            return False  # of a run that was killed the command may go on: its place is not free
        self.outcome = self._results.end(self._folder, self._process.returncode)
        return True


def launch(
    words: Sequence[str], *, folder: Path, environment: Mapping[str, str], output: Path
) -> subprocess.Popen[bytes]:
    """Start a program that writes both its streams into a file."""
    with output.open("wb") as file:
        return subprocess.Popen(  # noqa: S603 - the user's command, and its own words
            words,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
        )


def run_words(job: MatrixJob, results: Results, folder: Path) -> list[str]:
    """The command that measures a job into a folder; its parameters are tags of the report."""
    tags = {**job.parameters, REPEAT: str(job.repeat)}
    return [
        *(sys.executable, "-P", "-m", "energy_callbacks", "run"),
        *("--out", str(folder), f"--name={job}"),
        *results.run_options,
        *(word for name, value in tags.items() for word in (f"--tag={name}={value}",)),
        *("--", *job.words),
    ]


def _environment(added: Mapping[str, str]) -> dict[str, str]:
    """Of the caller, without the run folder that this process may itself be measured into."""
    kept = {name: value for name, value in os.environ.items() if name != RUN_DIR_VARIABLE}
    return {**kept, **added}
