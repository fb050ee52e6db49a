"""Tests of the profiles of forked and spawned workers of a real ``DataLoader``."""

import pstats
from importlib.util import find_spec

import pytest

from energy_callbacks.profiling.host.workers import Workers, WorkerTracker
from energy_callbacks.report import build
from tests.integrations.processes import Script, wait

METHODS = ("fork", "spawn")


@pytest.fixture(scope="module")
def trainings(forking, tmp_path_factory):
    """The folder with a training for each start method."""
    if not find_spec("torch"):
        pytest.skip("torch is not installed")
    folder = tmp_path_factory.mktemp("workers")
    script = Script(
        module="tests.profiling.host.workers_script",
        folder=folder,
        arguments=(str(folder), *METHODS),
    )
    assert wait(forking.start(script)) == 0, script.output
    assert "not followed" not in script.output
    return folder


@pytest.mark.parametrize("method", METHODS)
def test_workers_are_followed(method, trainings):
    """Both workers write calls and lines; the user's functions and batches are unchanged."""
    folder = trainings / method
    assert {path.name for path in folder.glob("init*")} == {"init0", "init1"}
    workers = build(folder).profile.host.workers
    assert workers.processes == 2
    profiles = sorted((folder / "profile").glob("host.*.prof"))
    called = [
        (key, line[1]) for path in profiles for key, line in pstats.Stats(str(path)).stats.items()
    ]
    loads = [calls for (_, _, name), calls in called if name == "load"]
    assert loads == [20, 20], "five batches of four samples in each"
    followed = [
        calls for (file, _, name), calls in called if name == "f" and "memory_profiler" in file
    ]
    assert followed == [20, 20], "a forked worker follows a function for its parent, too"
    tables = sorted((folder / "profile").glob("memory_lines.*.txt"))
    assert len(tables) == 2
    for path in tables:
        [line] = [line for line in path.read_text().splitlines() if "bytearray(16" in line]
        assert " 32 " in line, "each worker loads half of 64 samples"
    assert any("bytearray(16" in line for line in workers.lines)
    assert any(one.name.startswith("load") for one in workers.functions)


def test_a_later_patch_of_the_loader_stays(tmp_path, monkeypatch):
    """If other code has wrapped ``DataLoader.__iter__`` since, it is not unwrapped."""
    data = pytest.importorskip("torch.utils.data")
    monkeypatch.setattr(data.DataLoader, "__iter__", data.DataLoader.__iter__)
    before = data.DataLoader.__iter__
    given = {"functions": (), "batches": 1, "longest_s": 1.0, "inherited": None}
    workers = Workers(WorkerTracker(folder=tmp_path, **given))
    ours, loaders = data.DataLoader.__iter__, []
    assert ours is not before

    def theirs(loader):
        loaders.append(loader)
        return ours(loader)

    data.DataLoader.__iter__ = theirs
    workers.stop()
    assert [len(batch) for batch in data.DataLoader([1, 2], batch_size=2)] == [2]
    assert len(loaders) == 1
