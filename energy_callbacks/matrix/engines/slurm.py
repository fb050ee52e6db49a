"""Submits the jobs of a matrix to Slurm, in array jobs.

The first call of ``energy-callbacks matrix`` submits the jobs; later calls show the results, and
submit failed jobs again.
"""

import itertools
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from energy_callbacks.core import atomic_files
from energy_callbacks.core.errors import EnergyCallbacksError
from energy_callbacks.matrix.attempts import Results, check_no_secret, write_jobs, write_json
from energy_callbacks.matrix.engines.engine import Engine
from energy_callbacks.matrix.plan import MatrixJob, check_whole, counted
from energy_callbacks.matrix.progress import JobProgress

# Default of Slurm's MaxArraySize; the highest index in an array job is one less (slurm.conf(5)).
_DEFAULT_ARRAY_SIZE: Final = 1001
# Options of ``sbatch`` that users must not set, because the matrix sets them or depends on them.
_RESERVED: Final = frozenset(("array", "output", "error", "job-name", "parsable", "chdir", "wait"))
_TIMEOUT_S: Final = 60.0
_SUBMITTED: Final = "submitted.json"


class SlurmFailed(EnergyCallbacksError):
    """A program of Slurm is missing, failed, or did not answer in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmEngine(Engine):
    """Submits jobs with ``sbatch``, in array jobs of at most the size that Slurm allows.

    In the table ``[slurm]`` of the TOML file, the keys ``at_once`` and ``setup`` set the fields of
    the same names. Each other key is the name of an option of ``sbatch``; these options become the
    field ``sbatch``.

    Args:
        at_once: maximum number of jobs of one array job that run at the same time; ``None`` for no
            limit.
        setup: shell commands to run before each job, such as ``module load cuda``.
        sbatch: options of ``sbatch``, as names to values, such as ``partition = "gpu"``,
            ``gpus_per_node = 1`` or ``exclusive = true``.
    """

    at_once: int | None = None
    setup: str = ""
    sbatch: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.at_once is not None:
            check_whole("at_once", self.at_once, hint="; leave it out")
        if not isinstance(self.setup, str):
            raise TypeError(f"setup must be a string with shell commands, got {self.setup!r}")
        for name, value in self.sbatch.items():
            _check_option(name.replace("_", "-"), value)

    @property
    def lines(self) -> list[str]:
        """The options of ``sbatch`` as lines of a batch script."""
        return [
            _option(name.replace("_", "-"), None if value is True else str(value))
            for name, value in self.sbatch.items()
            if value is not False
        ]

    def preview(self, jobs: Sequence[MatrixJob], results: Results) -> str:
        """Return the scripts that would be submitted."""
        return "\n".join(
            f"# {folder}/array.sh\n{self._script(results, folder, len(chunk))}"
            for folder, chunk in _chunks(jobs, results)
        )

    def queued(self, jobs: Sequence[MatrixJob], results: Results) -> list[MatrixJob]:
        """Return those of ``jobs`` that are pending or running in Slurm.

        Raises:
            SlurmFailed: if ``squeue`` is missing, fails, or does not answer in time. If it fails
                because Slurm no longer knows an array job, the jobs of this array job count as
                ended, and no error is raised.
        """
        folders = {
            folder
            for path in results.folder.glob(f"slurm/*/{_SUBMITTED}")
            for folder in _queued(path)
        }
        return [job for job in jobs if str(job.folder) in folders]

    def run(self, jobs: Sequence[MatrixJob], results: Results, progress: JobProgress) -> None:
        """Submit jobs without waiting for them.

        Raises:
            SlurmFailed: if ``sbatch`` is missing, fails, or does not answer in time.
            ValueError: if a secret would be written to a file.
        """
        check_no_secret("[slurm]", [self.setup, self.lines])
        for folder, chunk in _chunks(jobs, results):
            atomic_files.make_folder(folder, exist_ok=False)
            write_jobs(folder / "jobs.json", results, chunk)
            script = folder / "array.sh"
            atomic_files.write(script, self._script(results, folder, len(chunk)))
            # The output is "id", or with the option "clusters" "id;cluster" (sbatch(1)).
            job_id, _, cluster = _output("sbatch", "--parsable", str(script)).strip().partition(";")
            jobs_of_id = [str(job.folder) for job in chunk]
            write_json(folder / _SUBMITTED, {"id": job_id, "cluster": cluster, "jobs": jobs_of_id})
            progress.say(f"{counted(len(chunk))} submitted to Slurm as job {job_id}: {script}")

    def _script(self, results: Results, folder: Path, count: int) -> str:
        at_once = f"%{self.at_once}" if self.at_once else ""
        task = [sys.executable, "-P", "-m", "energy_callbacks", "matrix", str(folder / "jobs.json")]
        lines = [
            "#!/bin/bash",
            _option("job-name", results.folder.name),
            f"#SBATCH --array=0-{count - 1}{at_once}",
            _option("output", f"{str(folder).replace('%', '%%')}/%a.txt"),
            *self.lines,
            *self.setup.splitlines(),
            f'exec {shlex.join(task)} --task "$SLURM_ARRAY_TASK_ID"',
        ]
        return "\n".join(lines) + "\n"


def _check_option(name: str, value: object) -> None:
    if name in _RESERVED:
        raise ValueError(f"{name!r} in [slurm] is set by the matrix itself; leave it out")
    if not re.fullmatch(r"[a-z][a-z0-9-]+", name):
        raise ValueError(f"{name!r} in [slurm] is not an option of sbatch; write its long name")
    if not isinstance(value, str | int) or "\n" in str(value):
        raise ValueError(f"{name} in [slurm] must be a string, a number, or true, got {value!r}")


def _option(name: str, value: str | None) -> str:
    """Return an option as a line of a batch script; the value is quoted if necessary."""
    return f"#SBATCH --{name}" if value is None else f"#SBATCH --{name}={shlex.quote(value)}"


def _chunks(
    jobs: Sequence[MatrixJob], results: Results
) -> Iterator[tuple[Path, Sequence[MatrixJob]]]:
    """Split jobs into array jobs of at most the size that Slurm allows.

    Yields:
        For each array job, a folder that does not exist yet, and the jobs.
    """
    size, folder = _max_array_size(), results.folder / "slurm"
    numbers = (n for n in itertools.count(1) if not (folder / str(n)).exists())
    for begin in range(0, len(jobs), size):
        yield folder / str(next(numbers)), jobs[begin : begin + size]


def _queued(path: Path) -> list[str]:
    """Return the folders of the pending or running jobs of one array job.

    Args:
        path: the file ``submitted.json`` of the array job.
    """
    submitted = json.loads(path.read_text(encoding="utf-8"))
    asked = [f"--jobs={submitted['id']}"]
    if cluster := submitted.get("cluster"):
        asked.append(f"--clusters={cluster}")
    try:
        lines = _output("squeue", "--noheader", "--array", *asked, "--format=%K").splitlines()
    except SlurmFailed as error:
        # Slurm removes a job from its memory some minutes after the end of the job.
        if "Invalid job id" in str(error):
            return []
        raise
    # With --clusters, a line "CLUSTER: name" precedes the indices.
    return [submitted["jobs"][int(line)] for line in lines if line.strip().isdecimal()]


def _max_array_size() -> int:
    with suppress(SlurmFailed):
        config = _output("scontrol", "show", "config")
        if match := re.search(r"^MaxArraySize\s*=\s*(\d+)", config, re.MULTILINE):
            return max(int(match[1]), 1)
    return _DEFAULT_ARRAY_SIZE


def _output(*words: str) -> str:
    """Run a program of Slurm, and return its standard output.

    Raises:
        SlurmFailed: if the program is missing, ends with an error, or does not end in time.
    """
    try:
        return subprocess.run(  # noqa: S603 - Slurm's own programs
            words, capture_output=True, text=True, check=True, timeout=_TIMEOUT_S
        ).stdout
    except FileNotFoundError as error:
        raise SlurmFailed(
            f"{words[0]} is not found; run this command on a machine that submits to Slurm, or "
            'set engine = "local"'
        ) from error
    except subprocess.CalledProcessError as error:
        fix = "run the command again later"
        if words[0] == "sbatch":
            fix = "correct [slurm] and run the command again"
        raise SlurmFailed(
            f"{shlex.join(words)} ended with {error.returncode}: {error.stderr.strip()}; {fix}"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise SlurmFailed(
            f"{words[0]} has not answered within {_TIMEOUT_S:g} s; run the command again later"
        ) from error
