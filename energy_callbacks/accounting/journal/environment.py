"""Collects facts about the environment of a process: versions, command, git commit, batch job."""

import os
import platform
import re
import shlex
import subprocess
import sys
from contextlib import suppress
from functools import cache
from typing import Any, Final

from energy_callbacks.accounting.journal import redaction
from energy_callbacks.version import __version__

_PACKAGES: Final = (
    "numpy", "torch", "lightning", "pytorch-lightning", "transformers", "keras", "tensorflow",
    "jax", "nvidia-ml-py", "codecarbon", "tensorboard",
)  # fmt: skip
# Environment variables that identify the batch job and its host, in several batch systems.
_JOB_VARIABLES: Final = (
    "SLURM_JOB_ID", "SLURM_ARRAY_TASK_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID",
    "KUBERNETES_POD_NAME", "HOSTNAME",
)  # fmt: skip


def describe(*, with_command: bool = True) -> dict[str, Any]:
    """Return versions, command, git commit and batch job: facts needed to repeat the run.

    Secrets in the command are replaced, see ``accounting.journal.redaction``.

    Args:
        with_command: ``False`` returns ``None`` instead of the command.
    """
    words = redaction.words([sys.executable, *sys.argv])
    return {
        "tool_version": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "command": shlex.join(words) if with_command else None,
        "git_commit": _git_commit(),
        "packages": _packages(),
        "cpu_count": os.cpu_count(),
        "job": {name: os.environ[name] for name in _JOB_VARIABLES if name in os.environ},
    }


def _packages() -> dict[str, str]:
    versions = {}
    for name in _PACKAGES:
        with suppress(ModuleNotFoundError):
            versions[name] = _version(name)
    return versions


@cache
def _version(package: str) -> str:
    """Return the version of an installed package; cached, because reading it takes time.

    ``importlib.metadata.version`` parses the whole file as an e-mail, which takes 2 ms.
    """
    from importlib.metadata import distribution

    found = distribution(package)
    version = re.search(r"^Version: (.*)$", found.read_text("METADATA") or "", re.MULTILINE)
    return version[1].strip() if version else found.version


def _git_commit() -> str | None:
    """Return the git commit of the working directory; ``None`` if git finds none within 2 s."""
    try:
        answer = subprocess.run(
            ["git", "rev-parse", "--short=12", "HEAD"],  # noqa: S607 - git from the user's PATH
            capture_output=True,
            text=True,
            timeout=2.0,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() or None
