"""Matrices as tasks of a real Ray on this machine, in processes of their own."""

import sys
from itertools import pairwise

import pytest

from energy_callbacks.matrix.engines.ray import RayOptions, fits, needs
from tests.matrix.lab import Lab, until

pytest.importorskip("ray")
NODES = [
    {"Alive": True, "Resources": {"CPU": 16.0, "GPU": 2.0}},
    {"Alive": True, "Resources": {"CPU": 8.0}},
    {"Alive": False, "Resources": {"CPU": 1.0}},
]


@pytest.fixture
def ray_lab(lab: Lab) -> Lab:
    """A matrix for Ray; its cluster ends with the call."""
    # No token in the user's home, and none is needed for a cluster that lives for a test.
    lab.environment["RAY_AUTH_MODE"] = "disabled"
    return lab


@pytest.mark.framework
def test_the_same_results_as_here(ray_lab: Lab) -> None:
    """Run folders, order and table; without a GPU one at a time; a failure is told."""
    command = [sys.executable, "job.py", "{a}-{b}-{repeat}", "0.3", "{b}"]
    ray_lab.write(
        engine="ray",
        command=command,
        parameters={"a": ["x"], "b": [0, 3]},
        repeats=2,
        ray={"address": "local"},
    )
    ended = ray_lab.run()
    assert ended.code == 1, ended.err
    assert ray_lab.log == ["x-0-1", "x-3-1", "x-3-2", "x-0-2"]
    spans = ray_lab.spans()
    assert all(after[0] > before[1] for before, after in pairwise(spans))
    assert "x-3 #1: exit code 3" in ended.err
    found = ray_lab.table()
    assert found["scope"] == "total"
    assert [(one["finished"], one["failed"]) for one in found["configurations"]] == [(2, 0), (0, 2)]
    assert ray_lab.run("--engine", "local").code == 1  # one file, one folder, another engine
    assert len(ray_lab.log) == 6


@pytest.mark.framework
def test_a_job_that_cannot_begin(ray_lab: Lab) -> None:
    """It is told, with where to look, and the exit code says that something is left."""
    ray_lab.write(engine="ray", ray={"address": "local"}, parameters={"a": ["x"], "b": [1]})
    place = ray_lab.results / "jobs" / "a=x,b=1"
    place.parent.mkdir(parents=True)
    place.write_text("a file where a folder belongs", encoding="utf-8")
    ended = ray_lab.run()
    assert ended.code == 1
    assert "x-1 #1: not run to its end; see" in ended.err
    assert "Not a directory" in (ray_lab.results / "ray_0.txt").read_text(encoding="utf-8")


@pytest.mark.framework
def test_sigterm_ends_its_jobs(ray_lab: Lab) -> None:
    """None is left behind, and none is begun that waited."""
    command = [sys.executable, "job.py", "{a}-{b}-{repeat}", "60", "0"]
    ray_lab.write(engine="ray", command=command, ray={"address": "local"})
    process = ray_lab.start()
    until(lambda: ray_lab.begun)
    process.terminate()
    process.communicate(timeout=60.0)
    assert process.returncode == 128 + 15
    assert ray_lab.begun == ["x-1-1"]
    [outcome] = ray_lab.results.glob("jobs/*/*/*/outcome.json")
    assert '"exit_code": -15' in outcome.read_text(encoding="utf-8")


def test_what_a_job_asks_for() -> None:
    """A GPU where there is one, else all processors of a machine; or what the file says."""
    assert needs(RayOptions(), NODES) == {"num_gpus": 1, "num_cpus": 1, "resources": {}}
    assert needs(RayOptions(), NODES[1:])["num_cpus"] == 8
    assert needs(RayOptions(gpus=0), NODES)["num_cpus"] == 8
    assert needs(RayOptions(gpus=2, cpus=4), NODES)["num_cpus"] == 4


def test_what_no_machine_has_is_told() -> None:
    """Of machines that are there, and of all that is asked for together."""
    assert fits(needs(RayOptions(gpus=2, cpus=16), NODES), NODES)
    assert not fits(needs(RayOptions(gpus=3), NODES), NODES)
    assert not fits(needs(RayOptions(gpus=1), NODES), NODES[1:])
    assert not fits(needs(RayOptions(resources={"big": 1.0}), NODES), NODES)
