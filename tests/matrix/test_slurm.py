"""Matrices through Slurm: submitted by one call, collected by another."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.matrix.lab import Lab
from tests.matrix.launcher import Launcher
from tests.matrix.stub_slurm import Cluster, run_by_bash, run_here


def cluster(lab: Lab, max_array_size: int = 1001) -> Cluster:
    """Create a cluster whose programs the lab finds in ``PATH``."""
    one = Cluster(lab.folder / "slurm_bin", max_array_size)
    lab.environment["PATH"] = f"{one.folder}{os.pathsep}{os.environ['PATH']}"
    return one


def test_submit_and_collect(lab: Lab, launcher: Launcher) -> None:
    """Queued jobs are not submitted again, failed ones are; the page has all results."""
    slurm = cluster(lab)
    command = [sys.executable, "job.py", "{a}-{b}-{repeat}", "0.1", "{b}"]
    lab.write(
        engine="slurm", command=command, parameters={"a": ["x"], "b": [0, 3]},
        slurm={"time": "00:10:00", "exclusive": True, "setup": "export SET_UP=1"},
    )  # fmt: skip
    ended = lab.run()
    assert ended.code == 0, ended.err
    assert "2 jobs submitted to Slurm as job 100" in ended.err
    script = (lab.results / "slurm" / "1" / "array.sh").read_text(encoding="utf-8")
    head = script.splitlines()
    assert head[0] == "#!/bin/bash"
    assert {"#SBATCH --array=0-1", "#SBATCH --time=00:10:00", "#SBATCH --exclusive"} <= set(head)
    assert head.index("export SET_UP=1") == len(head) - 2
    slurm.work(run_here(lab), only=[0])
    ended = lab.run()
    assert "1 job waiting or running;" in ended.err
    assert list(slurm.jobs) == ["100"]
    slurm.work(run_here(lab))
    assert lab.log == ["x-0-1", "x-3-1"]
    ended = lab.run("--collect")
    assert (ended.code, list(slurm.jobs)) == (1, ["100"])
    assert {(one["finished"], one["failed"]) for one in lab.table()["configurations"]} == {
        (1, 0), (0, 1),
    }  # fmt: skip
    lab.run()
    assert slurm.jobs["101"]["tasks"] == [0]
    launcher.can_fail = False
    slurm.work(run_here(lab))
    assert lab.run().code == 0
    assert lab.log == ["x-0-1", "x-3-1", "x-3-1"]
    assert len(slurm.jobs) == 2


def test_a_task_that_is_put_into_the_queue_again(lab: Lab) -> None:
    """Slurm requeues jobs of nodes that fail; a job that has succeeded does not run again."""
    slurm = cluster(lab)
    lab.write(engine="slurm", parameters={"a": ["x"], "b": [1]})
    assert lab.run().code == 0
    slurm.work(run_by_bash(lab))
    script = lab.results / "slurm" / "1" / "array.sh"
    again = Cluster(lab.folder / "again")
    (again.folder / "state.json").write_text(f'{{"7": {{"script": "{script}", "tasks": [0]}}}}')
    again.work(run_here(lab))
    assert not again.jobs["7"]["tasks"]
    assert lab.log == ["x-1-1"]


def test_what_was_submitted_stays_as_it_was(lab: Lab, launcher: Launcher) -> None:
    """Jobs run as submitted, even if the file has changed since."""
    slurm = cluster(lab)
    lab.write(engine="slurm", parameters={"a": ["x"], "b": [1, 2]})
    assert lab.run().code == 0
    lab.write(engine="slurm", parameters={"a": ["x"], "b": [5, 2, 1]})
    slurm.work(run_here(lab))
    assert sorted(lab.log) == ["x-1-1", "x-2-1"]
    assert "1 job submitted" in lab.run().err


def test_more_jobs_than_an_array_takes(lab: Lab) -> None:
    """They are split into several array jobs."""
    slurm = cluster(lab, max_array_size=3)
    lab.write(engine="slurm", parameters={"a": ["x"], "b": [1, 2, 3, 4]}, repeats=2,
              slurm={"at_once": 2})  # fmt: skip
    assert lab.run().code == 0
    assert [job["tasks"] for job in slurm.jobs.values()] == [[0, 1, 2], [0, 1, 2], [0, 1]]
    assert "#SBATCH --array=0-2%2" in Path(slurm.jobs["100"]["script"]).read_text()
    assert "8 jobs waiting or running;" in lab.run().err


def test_jobs_of_another_cluster_are_not_submitted_twice(lab: Lab) -> None:
    """Only ``squeue --clusters`` knows what ``sbatch --clusters`` has submitted."""
    slurm = cluster(lab)
    lab.write(engine="slurm", slurm={"clusters": "far"})
    assert lab.run().code == 0
    assert "2 jobs waiting or running;" in lab.run().err
    assert list(slurm.jobs) == ["100"]


def test_a_dry_run_submits_nothing(lab: Lab) -> None:
    """It prints all jobs and scripts, writes no file, and does not need Slurm."""
    lab.write(engine="slurm", repeats=2)
    lab.environment["PATH"] = "/nowhere"
    ended = lab.run("--dry-run")
    assert ended.code == 0, ended.err
    assert "#SBATCH --array=0-3" in ended.out
    assert "1 x-1 #1: " in ended.out
    assert not lab.results.exists()


def test_what_slurm_says_is_told(lab: Lab) -> None:
    """The message has the error of Slurm; without Slurm it says what to do."""
    cluster(lab)
    lab.write(engine="slurm", slurm={"partition": "wrong"})
    ended = lab.run()
    assert ended.code == 1
    assert (
        "invalid partition specified: wrong; correct [slurm] and run the command again" in ended.err
    )
    lab.write(engine="slurm")
    assert "2 jobs submitted" in lab.run().err  # nothing is left of the refused submission
    shutil.rmtree(lab.folder / "slurm_bin")
    ended = lab.run()
    assert ended.code == 1
    assert "squeue is not found" in ended.err


def test_a_controller_that_does_not_answer_is_no_wrong_option(lab: Lab) -> None:
    """The message does not ask to correct the file."""
    slurm = cluster(lab)
    lab.write(engine="slurm")
    assert lab.run().code == 0
    (slurm.folder / "squeue").write_text("#!/bin/sh\necho 'Unable to contact' >&2\nexit 1\n")
    ended = lab.run()
    assert "squeue --noheader" in ended.err
    assert "ended with 1: Unable to contact; run the command again later" in ended.err


@pytest.mark.parametrize("task", ["2", "-1"])
def test_a_task_that_is_not_there(lab: Lab, task: str) -> None:
    """An index beyond the jobs is refused."""
    slurm = cluster(lab)
    lab.write(engine="slurm")
    lab.run()
    lab.file = Path(slurm.jobs["100"]["script"]).with_name("jobs.json")
    ended = lab.run(f"--task={task}")
    assert ended.code == 2
    assert "--task must be from 0 to 1 for " in ended.err
