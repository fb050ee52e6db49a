"""A results folder has no secret; what other machines need is refused if it has one."""

from pathlib import Path
from typing import Any

import pytest

from energy_callbacks.cli.matrix import _preview
from energy_callbacks.matrix.attempts import Results, write_jobs
from energy_callbacks.matrix.engines.slurm import SlurmEngine
from energy_callbacks.matrix.plan import MatrixPlan
from energy_callbacks.matrix.progress import JobProgress
from energy_callbacks.matrix.summary import _command


def plan(**changes: Any) -> MatrixPlan:
    """Return a plan with a secret in its command and in its environment."""
    settings: dict[str, Any] = {
        "name": "m",
        "command": "train.py --lr {lr} --api-key X1zvQ",
        "parameters": {"lr": ["1", "2"]},
        "env": {"HF_TOKEN": "X1zvQ", "THREADS": "1"},
    }
    return MatrixPlan(**settings | changes)


@pytest.fixture
def results(tmp_path: Path) -> Results:
    """Return an empty results folder."""
    return Results(folder=tmp_path, working_folder=tmp_path)


def test_the_file_of_a_job_has_no_secret(results: Results) -> None:
    """The job itself keeps it, and its outcome is found again."""
    job = plan().jobs()[0]
    folder = results.begin(job)
    results.end(folder, 0)
    text = (folder / "job.json").read_text()
    assert "X1zvQ" not in text
    assert "THREADS" in text
    assert job.words[-1] == job.environment["HF_TOKEN"] == "X1zvQ"
    outcome = results.outcome(job)
    assert outcome is not None
    assert outcome.is_done


def test_a_changed_command_is_still_found(results: Results) -> None:
    """Commands are compared without their secrets; the message has none."""
    results.end(results.begin(plan().jobs()[0]), 0)
    other = plan(command="other.py --lr {lr} --api-key X1zvQ").jobs()[0]
    with pytest.raises(ValueError, match="another command") as caught:
        results.outcome(other)
    assert "X1zvQ" not in str(caught.value)


@pytest.mark.parametrize("changes", [{"env": {}}, {"command": "train.py --lr {lr}"}])
def test_jobs_of_other_machines_must_have_no_secret(
    results: Results, changes: dict[str, Any]
) -> None:
    """Their file would need it unchanged; the message says what to do."""
    with pytest.raises(ValueError, match=r"contains a secret.*environment of the jobs") as caught:
        write_jobs(results.folder / "jobs.json", results, plan(**changes).jobs())
    assert "X1zvQ" not in str(caught.value)
    assert not (results.folder / "jobs.json").exists()
    write_jobs(results.folder / "jobs.json", results, plan(command="a {lr}", env={}).jobs())


def test_scripts_of_slurm_must_have_no_secret(results: Results) -> None:
    """The commands before each job are written to a script."""
    engine = SlurmEngine(setup="export HF_TOKEN=X1zvQ")
    with pytest.raises(ValueError, match=r"\[slurm\] contains a secret"):
        engine.run(plan(command="a {lr}", env={}).jobs(), results, JobProgress(2, 0))


def test_what_is_printed_has_no_secret(
    results: Results, capsys: pytest.CaptureFixture[str]
) -> None:
    """The preview and the page show the command without it; others are shown as written."""
    _preview(plan().jobs(), results)
    assert "--api-key REDACTED" in capsys.readouterr().out
    assert "X1zvQ" not in _command(plan())
    assert _command(plan(command="train.py  --lr {lr}")) == "train.py  --lr {lr}"
