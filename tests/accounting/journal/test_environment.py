"""The description of the process in a journal."""

import json
import os
import subprocess
from importlib import metadata
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from energy_callbacks.accounting.journal import environment
from energy_callbacks.version import __version__


def test_it_names_versions_and_command() -> None:
    """Tool, Python, packages and command are included, and the result is JSON."""
    found = environment.describe()
    assert found["tool_version"] == __version__
    assert found["python"].count(".") == 2
    assert "numpy" in found["packages"]
    assert found["command"]
    assert json.loads(json.dumps(found)) == found


def test_versions_are_read_once_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second meter does not read the files of packages again."""
    first = environment.describe()

    def fail(package: str) -> str:
        raise PackageNotFoundError(package)

    monkeypatch.setattr(metadata.Distribution, "from_name", fail)
    assert environment.describe() == first


def test_the_commit_is_that_of_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inside a repository the short commit; outside ``None``."""
    monkeypatch.chdir(tmp_path)
    assert environment._git_commit() is None
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    subprocess.run([*git, "init", "-q"], check=True)
    assert environment._git_commit() is None
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    whole = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    commit = environment._git_commit()
    assert commit is not None
    assert len(commit) == 12
    assert whole.stdout.startswith(commit)


@pytest.mark.parametrize(
    "error", [FileNotFoundError("git"), subprocess.TimeoutExpired("git", 2.0), PermissionError()]
)
def test_a_machine_without_git_has_no_commit(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If git is missing, hangs or may not be run, the commit is ``None``."""

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(subprocess, "run", fail)
    assert environment._git_commit() is None


def test_a_batch_system_job_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables of batch systems are kept, others are not."""
    monkeypatch.setattr(os, "environ", {"SLURM_JOB_ID": "7", "PASSWORD": "x"})
    assert environment.describe()["job"] == {"SLURM_JOB_ID": "7"}
