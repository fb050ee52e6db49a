"""Collects facts about the environment of a process: versions, command, git commit, batch job."""

import os
import platform
import re
import shlex
import subprocess
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

from energy_callbacks.accounting.journal import redaction
from energy_callbacks.version import __version__

_PACKAGES: Final = (
    "numpy", "torch", "lightning", "pytorch-lightning", "transformers", "keras", "tensorflow",
    "jax", "nvidia-ml-py", "codecarbon", "tensorboard",
)  # fmt: skip
# Name and version of an installed package; older programs write names that end in ``.egg-info``.
_INSTALLED: Final = re.compile(r"(?P<name>[\w.]+)-(?P<version>[^-]+)(-py[\d.]+)?\.(dist|egg)-info")
# Environment variables that identify the batch job and its host, in several batch systems.
_JOB_VARIABLES: Final = (
    "SLURM_JOB_ID", "SLURM_ARRAY_TASK_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID",
    "KUBERNETES_POD_NAME", "HOSTNAME",
)  # fmt: skip
# Time limit for git, s.
_GIT_S: Final = 2.0


def describe(*, with_command: bool = True) -> dict[str, Any]:
    """Return versions, command, git commit and batch job: facts needed to repeat the run.

    Secrets in the command are replaced, see ``accounting.journal.redaction``.

    Args:
        with_command: ``False`` returns ``None`` instead of the command.
    """
    versions = installed()
    words = redaction.words([sys.executable, *sys.argv])
    return {
        "tool_version": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "command": shlex.join(words) if with_command else None,
        "git_commit": _git_commit(),
        "packages": {name: versions[name] for name in _PACKAGES if name in versions},
        "cpu_count": os.cpu_count(),
        "job": {name: os.environ[name] for name in _JOB_VARIABLES if name in os.environ},
    }


def installed() -> dict[str, str]:
    """Return the versions of installed packages by name, such as ``nvidia-ml-py``.

    They are read from names such as ``torch-2.13.0.dist-info`` (Python Packaging User Guide,
    "Recording installed projects"), because importing ``importlib.metadata`` takes 30 ms.
    """
    # If a package is in several folders, Python imports that of the first.
    names = (name for folder in reversed(sys.path) for name in _names_in(folder))
    found = filter(None, map(_INSTALLED.fullmatch, names))
    return {match["name"].lower().replace("_", "-"): match["version"] for match in found}


@cache
def _names_in(folder: str) -> list[str]:
    with suppress(OSError):
        return [path.name for path in Path(folder).glob("*-info")]
    return []


def _git_commit() -> str | None:
    """Return the git commit of the working directory; ``None`` if git finds none in time."""
    try:
        answer = subprocess.run(
            ["git", "rev-parse", "--short=12", "HEAD"],  # noqa: S607 - git from the user's PATH
            capture_output=True,
            text=True,
            timeout=_GIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() or None
