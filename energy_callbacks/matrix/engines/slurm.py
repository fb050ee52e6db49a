"""Jobs as array jobs of Slurm: one call submits, a later one collects."""

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
from energy_callbacks.matrix import job_manifest
from energy_callbacks.matrix.attempts import Results, write_json
from energy_callbacks.matrix.engines.protocol import JobListener
from energy_callbacks.matrix.naming import counted
from energy_callbacks.matrix.plan import MatrixJob

# Slurm's default of MaxArraySize; numbers go up to one below (slurm.conf(5)).
_USUAL_SIZE: Final = 1001
_OURS: Final = frozenset(("array", "output", "error", "job-name", "parsable", "chdir", "wait"))
_TIMEOUT_S: Final = 60.0
_SUBMITTED: Final = "submitted.json"


class SlurmFailed(EnergyCallbacksError):
    """A program of Slurm is not there, or refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmOptions:
    """``[slurm]`` of the file; each other key of it is an option of ``sbatch``.

    Args:
        at_once: at most this many jobs at the same time; ``None`` for no limit.
        setup: lines of shell before each job, such as ``module load cuda``.
        sbatch: options, as in ``partition = "gpu"``, ``gpus_per_node = 1``, ``exclusive = true``.
    """

    at_once: int | None = None
    setup: str = ""
    sbatch: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.at_once is not None and (not isinstance(self.at_once, int) or self.at_once < 1):
            raise ValueError(
                f"at_once must be a whole number of at least 1, got {self.at_once!r}; leave it out"
            )
        if not isinstance(self.setup, str):
            raise TypeError(f"setup must be lines of shell, got {self.setup!r}")
        for name, value in self.sbatch.items():
            self._check(name.replace("_", "-"), value)

    def _check(self, name: str, value: object) -> None:
        if name in _OURS:
            raise ValueError(f"{name!r} in [slurm] is set by the matrix itself; leave it out")
        if not re.fullmatch(r"[a-z][a-z0-9-]+", name):
            raise ValueError(f"{name!r} in [slurm] is no option of sbatch; write its long name")
        if not isinstance(value, str | int) or "\n" in str(value):
            raise ValueError(f"{name} in [slurm] must be a text, a number, or true, got {value!r}")

    @property
    def lines(self) -> list[str]:
        """For the head of a script."""
        return [
            _option(name.replace("_", "-"), None if value is True else str(value))
            for name, value in self.sbatch.items()
            if value is not False
        ]


class SlurmEngine:
    """See ``protocol.Engine``.

    Args:
        options: of ``sbatch``.
        results: where jobs leave what they have measured; on a file system that nodes share.
    """

    def __init__(self, options: SlurmOptions, results: Results) -> None:
        self._options = options
        self._results = results

    def preview(self, jobs: Sequence[MatrixJob]) -> str:
        """The scripts that would be submitted."""
        scripts = [
            f"# {folder}/array.sh\n{self._script(folder, len(chunk))}"
            for folder, chunk in self._chunks(jobs)
        ]
        return "\n".join(scripts)

    def queued(self, jobs: Sequence[MatrixJob]) -> list[MatrixJob]:
        """Those that Slurm has taken and not yet ended.

        Raises:
            SlurmFailed: if Slurm does not say.
        """
        folders = {
            folder for path in self._place.glob(f"*/{_SUBMITTED}") for folder in _alive(path)
        }
        return [job for job in jobs if str(job.folder) in folders]

    def run(self, jobs: Sequence[MatrixJob], told: JobListener) -> None:
        """Submit them; they run when the cluster has room.

        Raises:
            SlurmFailed: if ``sbatch`` refused.
        """
        for folder, chunk in self._chunks(jobs):
            folder.mkdir(parents=True)
            job_manifest.write(folder / "jobs.json", self._results, chunk)
            script = folder / "array.sh"
            atomic_files.write(script, self._script(folder, len(chunk)))
            # "id" or "id;cluster" (sbatch(1), --parsable).
            job_id = _said("sbatch", "--parsable", str(script)).strip().split(";")[0]
            write_json(
                folder / _SUBMITTED, {"id": job_id, "jobs": [str(job.folder) for job in chunk]}
            )
            told.said(f"{counted(len(chunk))} submitted to Slurm as job {job_id}: {script}")

    @property
    def _place(self) -> Path:
        return self._results.folder / "slurm"

    def _chunks(self, jobs: Sequence[MatrixJob]) -> Iterator[tuple[Path, Sequence[MatrixJob]]]:
        """As many at once as Slurm takes, each in a folder that is not there yet."""
        size = _max_array_size()
        numbers = (n for n in itertools.count(1) if not (self._place / str(n)).exists())
        for begin in range(0, len(jobs), size):
            yield self._place / str(next(numbers)), jobs[begin : begin + size]

    def _script(self, folder: Path, count: int) -> str:
        at_once = f"%{self._options.at_once}" if self._options.at_once else ""
        task = [sys.executable, "-P", "-m", "energy_callbacks", "matrix"]
        lines = [
            "#!/bin/bash",
            _option("job-name", self._results.folder.name),
            f"#SBATCH --array=0-{count - 1}{at_once}",
            _option("output", f"{str(folder).replace('%', '%%')}/%a.txt"),
            *self._options.lines,
            *self._options.setup.splitlines(),
            f'exec {shlex.join([*task, str(folder / "jobs.json")])} --task "$SLURM_ARRAY_TASK_ID"',
        ]
        return "\n".join(lines) + "\n"


def _option(name: str, value: str | None) -> str:
    """A line of a script; a value with spaces stays one."""
    return f"#SBATCH --{name}" if value is None else f"#SBATCH --{name}={shlex.quote(value)}"


def _alive(path: Path) -> list[str]:
    """Of the jobs in one submission, those that wait or run."""
    submitted = json.loads(path.read_text(encoding="utf-8"))
    try:
        said = _said("squeue", "--noheader", "--array", f"--jobs={submitted['id']}", "--format=%K")
    except SlurmFailed as error:
        if "Invalid job id" in str(error):  # Slurm forgets a job some minutes after its end
            return []
        raise
    return [submitted["jobs"][int(word)] for word in said.split() if word.isdecimal()]


def _max_array_size() -> int:
    with suppress(SlurmFailed):
        found = re.search(
            r"^MaxArraySize\s*=\s*(\d+)", _said("scontrol", "show", "config"), re.MULTILINE
        )
        if found is not None:
            return max(int(found[1]), 1)
    return _USUAL_SIZE


def _said(*words: str) -> str:
    """The output of a program of Slurm.

    Raises:
        SlurmFailed: if it is not there, is silent, or ends with an error.
    """
    try:
        return subprocess.run(  # noqa: S603 - Slurm's own programs
            words, capture_output=True, text=True, check=True, timeout=_TIMEOUT_S
        ).stdout
    except FileNotFoundError as error:
        raise SlurmFailed(
            f"{words[0]} is not found; call this on a machine that submits to Slurm, or take "
            'engine = "local"'
        ) from error
    except subprocess.CalledProcessError as error:
        raise SlurmFailed(
            f"{shlex.join(words)} ended with {error.returncode}: {error.stderr.strip()}; "
            "correct [slurm] and call again"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise SlurmFailed(
            f"{words[0]} has not answered within {_TIMEOUT_S:g} s; call again later"
        ) from error
