"""The description of the process in a journal."""

import json
import os
import subprocess
import sys
from importlib.metadata import version
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


def test_versions_are_those_that_pip_knows() -> None:
    """Versions agree with ``importlib.metadata``, in lower case and with hyphens in names."""
    found = environment.installed()
    names = ("numpy", "nvidia-ml-py", "torch", "codecarbon")
    assert {name: found[name] for name in names} == {name: version(name) for name in names}


def test_the_first_folder_of_the_path_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two versions, the one that Python imports; missing folders and other files are passed."""
    for name in (
        "first/My_Tool-2.0+cpu.dist-info",
        "second/my_tool-1.0-py3.11.egg-info",
        "second/other.tool-1.0-py3.11.egg-info",
        "second/notes-info",
    ):
        (tmp_path / name).mkdir(parents=True)
    folders = [tmp_path / "none", tmp_path / "first", tmp_path / "second"]
    monkeypatch.setattr(sys, "path", list(map(str, folders)))
    assert environment.installed() == {"my-tool": "2.0+cpu", "other.tool": "1.0"}


def test_the_commit_is_that_of_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inside a repository the short commit; outside ``None``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.setattr(environment, "_GIT_S", 60.0)
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):  # set in hooks of git
        monkeypatch.delenv(name, raising=False)
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
