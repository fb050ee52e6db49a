"""Matrices as tasks of Ray: of a real one on this machine in its own processes, and simulated."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from energy_callbacks.matrix.attempts import Results, write_jobs
from energy_callbacks.matrix.engines.ray import RayEngine, fits, needs, run_task
from energy_callbacks.matrix.plan import MatrixJob
from energy_callbacks.matrix.progress import JobProgress
from tests.core.waiting import until
from tests.matrix.lab import Lab
from tests.matrix.launcher import Launcher

pytest.importorskip("ray")
NODES = [
    {"Alive": True, "Resources": {"CPU": 16.0, "GPU": 2.0}},
    {"Alive": True, "Resources": {"CPU": 8.0}},
    {"Alive": False, "Resources": {"CPU": 1.0}},
]


@pytest.fixture
def ray_lab(lab: Lab) -> Lab:
    """Provide a matrix for Ray; its cluster ends with the call."""
    # A cluster for one test needs no token, and none may be written to the user's home.
    lab.environment["RAY_AUTH_MODE"] = "disabled"
    # Ray gives its workers nice 15, with which a job takes minutes on a busy machine.
    lab.environment["RAY_worker_niceness"] = "0"
    return lab


def test_one_call_of_ray(ray_lab: Lab, launcher: Launcher) -> None:
    """Jobs succeed, fail, cannot start, and are ended by SIGTERM; another engine runs the rest.

    Run folders, order and table are those of the local engine; without a GPU jobs run one by one.
    """
    # Jobs sleep for as many seconds as their exit code; for one a file blocks its folder.
    ray_lab.write(
        engine="ray",
        command=[sys.executable, "job.py", "{a}-{b}-{repeat}", "{b}", "{b}"],
        parameters={"a": ["x"], "b": [0, 1, 5, 600, 601]},
        ray={"address": "local"},
    )
    place = ray_lab.results / "jobs" / "a=x,b=5"
    place.parent.mkdir(parents=True)
    place.write_text("a file where a folder belongs", encoding="utf-8")
    process = ray_lab.start()
    until(lambda: "x-600-1" in ray_lab.begun)
    process.terminate()
    _, err = process.communicate(timeout=600.0)
    assert process.returncode == 128 + 15, err
    assert "x-1 #1: exit code 1" in err
    assert "x-5 #1: did not finish; see" in err
    assert "Not a directory" in (ray_lab.results / "ray_2.txt").read_text(encoding="utf-8")
    assert ray_lab.log == ["x-0-1", "x-1-1"]
    first, second = ray_lab.spans()
    assert second[0] > first[1]
    # No job is left running, and no waiting job was started.
    assert ray_lab.begun == ["x-0-1", "x-1-1", "x-600-1"]
    [outcome] = ray_lab.results.glob("jobs/a=x,b=600/*/*/outcome.json")
    assert '"exit_code": -15' in outcome.read_text(encoding="utf-8")
    found = ray_lab.table()
    assert found["scope"] == "total"
    assert {one["parameters"]["b"]: (one["finished"], one["failed"], one["missing"])
            for one in found["configurations"]} == {
        "0": (1, 0, 0), "1": (0, 1, 0), "5": (0, 0, 1), "600": (0, 1, 0), "601": (0, 0, 1),
    }  # fmt: skip
    place.unlink()
    assert ray_lab.run("--engine", "local").code == 1  # the same file, another engine
    assert ray_lab.begun[3:] == ["x-1-1", "x-5-1", "x-600-1", "x-601-1"]


@pytest.mark.slow(reason="a second cluster of Ray, which takes seconds to start")
def test_a_call_of_ray_that_nobody_ends(ray_lab: Lab) -> None:
    """All repeats run in order, and the exit code says that a job has failed."""
    command = [sys.executable, "job.py", "{a}-{b}-{repeat}", "0.3", "{b}"]
    ray_lab.write(
        engine="ray",
        command=command,
        parameters={"a": ["x"], "b": [0, 3]},
        repeats=2,
        ray={"address": "local"},
    )
    ended = ray_lab.finish()
    assert ended.code == 1, ended.err
    assert ray_lab.log == ["x-0-1", "x-3-1", "x-3-2", "x-0-2"]
    found = ray_lab.table()["configurations"]
    assert [(one["finished"], one["failed"]) for one in found] == [(2, 0), (0, 2)]


def test_what_a_job_asks_for() -> None:
    """A job needs one GPU if there is any, else all CPUs of a machine, or what the file says."""
    assert needs(RayEngine(), NODES) == {"num_gpus": 1, "num_cpus": 1, "resources": {}}
    assert needs(RayEngine(), NODES[1:])["num_cpus"] == 8
    assert needs(RayEngine(gpus=0), NODES)["num_cpus"] == 8
    assert needs(RayEngine(gpus=2, cpus=4), NODES)["num_cpus"] == 4
    assert needs(RayEngine(), NODES[2:])["num_cpus"] == 1  # no machine is running yet


def test_what_no_machine_has_is_told() -> None:
    """Only machines that are alive count, and one must have all resources."""
    assert fits(needs(RayEngine(gpus=2, cpus=16), NODES), NODES)
    assert not fits(needs(RayEngine(gpus=3), NODES), NODES)
    assert not fits(needs(RayEngine(gpus=1), NODES), NODES[1:])
    assert not fits(needs(RayEngine(resources={"big": 1.0}), NODES), NODES)


class LostTasks:
    """A Ray of one machine that cannot run tasks.

    Attributes:
        is_shut_down: whether ``shutdown`` was called.
    """

    def __init__(self) -> None:
        self.exceptions = SimpleNamespace(RayError=OSError)
        self.is_shut_down = False
        self.nodes: Callable[[], Any] = lambda: NODES

    def init(self, **_: Any) -> None:
        """Connect."""

    def remote(self, **_: Any) -> Callable[..., Any]:
        """Return a decorator of functions; a task is its index."""
        return lambda _: SimpleNamespace(remote=lambda _, number: number)

    def wait(self, tasks: list[int], **_: Any) -> tuple[list[int], list[int]]:
        """All tasks have ended."""
        return tasks, []

    def get(self, task: int) -> None:
        """Raise the error of a task."""
        raise self.exceptions.RayError("the worker died")

    def shutdown(self) -> None:
        """Disconnect."""
        self.is_shut_down = True


JOB = MatrixJob(configuration="x", parameters={"a": "x"}, repeat=1, words=("train",))


@pytest.fixture
def lost(monkeypatch: pytest.MonkeyPatch) -> LostTasks:
    """Replace Ray."""
    one = LostTasks()
    monkeypatch.setitem(sys.modules, "ray", one)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    return one


def test_an_attempt_of_an_earlier_call_is_no_end_of_a_task(
    lost: LostTasks, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ray cannot run the task of a job that has failed before."""
    results = Results(folder=tmp_path, working_folder=tmp_path)
    results.end(results.begin(JOB), 3)
    with JobProgress(1, 0) as progress:
        assert RayEngine().run([JOB], results, progress) is None
    err = capsys.readouterr().err
    assert "x #1: did not finish" in err
    assert "exit code 3" not in err
    assert lost.is_shut_down


def test_ray_is_shut_down_if_tasks_cannot_be_submitted(lost: LostTasks, tmp_path: Path) -> None:
    """The cluster does not answer."""

    def nodes() -> Any:
        raise ConnectionError("no answer")

    lost.nodes = nodes
    with JobProgress(1, 0) as progress, pytest.raises(ConnectionError):
        RayEngine().run([JOB], Results(folder=tmp_path, working_folder=tmp_path), progress)
    assert lost.is_shut_down


def test_a_cancelled_task_whose_command_takes_long_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command gets SIGTERM, and the task ends with the exception that cancelled it."""
    calls: list[str] = []

    class Process:
        def poll(self) -> None:
            raise KeyboardInterrupt

        def terminate(self) -> None:
            calls.append("terminate")

        def wait(self, timeout_s: float) -> None:
            raise subprocess.TimeoutExpired("train", timeout_s)

    monkeypatch.setattr("energy_callbacks.matrix.engines.ray.launch", lambda *_, **__: Process())
    file = tmp_path / "ray_jobs.json"
    write_jobs(file, Results(folder=tmp_path, working_folder=tmp_path), [JOB])
    with pytest.raises(KeyboardInterrupt):
        run_task(str(file), 0)
    assert calls == ["terminate"]
