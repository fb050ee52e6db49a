"""The environment of a run for its report: versions, command, commit, job."""

import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

_PACKAGES: Final = (
    "numpy", "torch", "lightning", "pytorch-lightning", "transformers", "keras", "tensorflow",
    "jax", "nvidia-ml-py", "codecarbon", "tensorboard",
)  # fmt: skip
# Variables that batch systems set for every job, by their own documentation.
_JOB_VARIABLES: Final = (
    "SLURM_JOB_ID", "SLURM_ARRAY_TASK_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID",
    "KUBERNETES_POD_NAME", "HOSTNAME",
)  # fmt: skip


def describe(tool_version: str) -> dict[str, Any]:
    """Everything about this process that a reader may need to repeat the run."""
    return {
        "tool_version": tool_version,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "command": shlex.join([sys.executable, *sys.argv]),
        "git_commit": _git_commit(),
        "packages": _packages(),
        "cpu_count": os.cpu_count(),
        "job": _job(os.environ),
    }


def _packages() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = _version(name)
        except PackageNotFoundError:
            continue
    return found


@cache
def _version(package: str) -> str:
    """Of an installed package; reading it takes milliseconds, and one process makes many meters.

    Raises:
        PackageNotFoundError: if it is not installed; asked again next time.
    """
    return version(package)


def _git_commit() -> str | None:
    """Commit of the working directory; ``None`` outside a repository or without git."""
    try:
        answer = subprocess.run(
            ["git", "rev-parse", "--short=12", "HEAD"],  # noqa: S607 - git as the user has it
            capture_output=True,
            text=True,
            timeout=2.0,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() or None


def _job(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: environment[name] for name in _JOB_VARIABLES if name in environment}
