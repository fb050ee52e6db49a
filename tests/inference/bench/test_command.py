"""``powercap bench`` on simulated GPUs."""

import csv
import json
from pathlib import Path

import pytest

from energy_callbacks.cli import main
from energy_callbacks.inference.bench.tasks import own_tasks, tasks
from energy_callbacks.inference.control.controllers import CONTROLLERS

BENCH = ["powercap", "bench"]
EVERY = tuple(CONTROLLERS)


def numbers(capsys: pytest.CaptureFixture[str], *words: str) -> list[int]:
    """Return the numbers of the tasks that a command would run with one algorithm."""
    assert main([*BENCH, *words, "--algorithm", EVERY[0], "--dry-run", "--json"]) == 0
    return [one["task"]["id"] for one in json.loads(capsys.readouterr().out)]


def finishes(out: Path, *words: str) -> None:
    """Check that a benchmark has a result of each algorithm on each task, with all rows."""
    small = ["--quick", "--points", "4"]
    assert main([*BENCH, "--gpu", "sim", *small, "--out", str(out), "-q", *words]) == 0


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide the results of all algorithms, which share the predictors of two tasks."""
    folder = tmp_path_factory.mktemp("bench")
    finishes(folder, "--algorithm", *EVERY, "--task-id", "29", "116")
    return folder


@pytest.mark.parametrize("algorithm", EVERY)
def test_every_algorithm_runs(algorithm: str, results: Path) -> None:
    """Each name of a controller works with fixed and changing caps, also for training."""
    files = list(results.glob(f"*_{algorithm}/*.csv"))
    assert len(files) == 2
    for path in files:
        with path.open(newline="") as file:
            lines = list(csv.DictReader(file))
        assert [int(line["iter"]) for line in lines] == list(range(21))
        assert {line["algorithm"] for line in lines} == {algorithm}
        assert {line["source"] for line in lines} == {"simulated"}
        assert float(lines[-1]["throughput_total"]) > 0.0


@pytest.mark.slow(reason="runs every algorithm on all tasks")
@pytest.mark.parametrize("algorithm", EVERY)
def test_every_algorithm_runs_every_task(algorithm: str, tmp_path: Path) -> None:
    """None of them fails on any task."""
    finishes(tmp_path, "--algorithm", algorithm)
    assert len(list(tmp_path.glob(f"*_{algorithm}/*.csv"))) == len(tasks()) + len(own_tasks())


def test_the_tasks_of_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    """By default, they are those of its card; tasks of other cards are an error if named."""
    assert numbers(capsys, "--gpu", "sim:rtx3080ti") == list(range(1, 15))
    assert numbers(capsys, "--gpu", "sim:a100", "--start-from", "28") == [28, 29, 30]
    assert numbers(capsys, "--gpu", "sim", "--task-id", "1", "15") == [1, 15]
    assert len(numbers(capsys, "--gpu", "sim")) == len(tasks()) + len(own_tasks())


def test_a_file_of_tasks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A user's tasks replace those of the package."""
    path, out = tmp_path / "mine.toml", tmp_path / "out"
    path.write_text(
        'task = [{ id = 1, gpu = "h200", model = "vgg19", dataset = "mine", cap_w = 400 }]'
    )
    words = ["--tasks", str(path), "--algorithm", "powercap", "--json"]
    finishes(out, *words, "--save-summary")
    assert (out / "sim-h200_powercap" / "1_vgg19_mine_400W.csv").exists()
    (found,) = json.loads(capsys.readouterr().out)["tasks"]
    assert (found["dataset"], found["source"], found["caps_w"]) == ("mine", "simulated", [400.0])
    assert found["figures"]["optimum_share"]["value"] > 0.2
    assert json.loads((out / "summary.json").read_text())["tasks"] == [found]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--gpu", "sim", "--data", "imagenet=x", "--dry-run"], "sim reads no images"),
        (["--gpu", "sim:p100"], "no simulated GPU 'sim:p100'; choose from sim:h200"),
        (["--gpu", "sim:a100", "--task-id", "1"], "task 1 is for rtx3080ti, and --gpu is sim:a100"),
        (["--gpu", "sim", "--algorithm", "best"], "there is no algorithm 'best'; choose from"),
        (["--gpu", "sim", "--task-id", "99"], "there is no task 99; the tasks are 1, 2"),
        (["--gpu", "sim", "--seeds", "0"], "seeds must be at least 1, got 0"),
        (["--gpu", "sim", "--iterations", "0"], "--iterations must be at least 1, got 0"),
        (["--gpu", "sim", "--task-id", "29", "--iterations", "2"], "task 29 has 3 caps"),
        (["--gpu", "sim", "--points", "2"], "a profile needs at least 4 points, got 2"),
        (["--gpu", "sim", "--tasks", "/none.toml"], "No such file or directory"),
        (["--gpu", "sim", "--algorithm", EVERY[0], EVERY[0]], "must be different names"),
    ],
)
def test_wrong_arguments(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are errors before anything is run or written."""
    out = tmp_path / "out"
    assert main([*BENCH, "--out", str(out), *words]) == 2
    assert message in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('gpu = "h200", model = "bert"', "task 1: sim:h200 has no model 'bert'; it has densenet"),
        ('gpu = "b200", model = "vgg19"', "task 1 is for b200, which cannot be simulated"),
    ],
)
def test_wrong_tasks(
    line: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A task that the GPU cannot run is an error before the first run."""
    path, out = tmp_path / "mine.toml", tmp_path / "out"
    path.write_text(f'task = [{{ id = 1, {line}, dataset = "d", cap_w = 400 }}]')
    words = ["--gpu", "sim", "--tasks", str(path), "--out", str(out)]
    assert main([*BENCH, *words]) == 2
    assert message in capsys.readouterr().err
    assert not out.exists()


def test_a_dry_run_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It prints every run with its file, in the order in which they would be made."""
    out = tmp_path / "out"
    words = ["--gpu", "sim:a100", "--task-id", "20", "--seeds", "2", "--out", str(out)]
    assert main([*BENCH, *words, "--algorithm", EVERY[0], "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    folder = out / f"sim-a100_{EVERY[0]}"
    pairs = zip(lines[:2], ("", "_seed1"), strict=True)
    for number, (line, seed) in enumerate(pairs, start=1):
        assert line.startswith(f"[{number}/2] task 20: resnet50 (imagenet) on a100, 150 W")
        assert line.endswith(str(folder / f"20_resnet50_imagenet_150W{seed}.csv"))
    assert lines[-1] == "no setting of a real GPU is changed; nothing was run"
    assert not out.exists()


def test_a_dry_run_states_the_time_of_runs_that_are_left(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One run is finished, and one of two windows is not."""
    words = ["--gpu", "sim", "--task-id", "29", "--quick", "--algorithm", EVERY[0]]
    plan = [*BENCH, *words, "--out", str(results), "--resume", "--dry-run"]
    assert main(plan) == 0
    shown = capsys.readouterr().out
    assert "(finished)" in shown
    assert "1 runs, 1 of them finished, at least 0 s of virtual time" in shown
    assert main([*plan, "--seeds", "2"]) == 0
    assert "2 runs, 1 of them finished, at least 21.0 s of virtual time" in capsys.readouterr().out


def test_results_are_continued_only_if_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --resume, runs that are finished are not made again, and others are added."""
    words = ["--algorithm", "powercap", "--task-id", "20"]
    finishes(tmp_path, *words)
    (path,) = tmp_path.glob("sim-*/*.csv")
    before = path.stat().st_mtime_ns
    assert main([*BENCH, "--gpu", "sim", "--quick", "--out", str(tmp_path), *words]) == 2
    assert "add --resume" in capsys.readouterr().err
    finishes(tmp_path, *words, "--seeds", "2", "--resume")
    assert path.stat().st_mtime_ns == before
    assert len(list(tmp_path.glob("sim-*/*.csv"))) == 2


def test_a_failed_run_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The exit code is 1, and the message is in the summary; other runs are made."""
    path = tmp_path / "mine.toml"
    line = '{ id = %d, gpu = "%s", model = "vgg19", dataset = "d", cap_w = 400 }'
    path.write_text(f"task = [{line % (1, 'h200')}, {line % (2, 'a100')}]")
    out = tmp_path / "out"
    words = ["--gpu", "sim", "--tasks", str(path), "--points", "4", "--iterations", "2"]
    words += ["--algorithm", EVERY[0]]
    assert main([*BENCH, *words, "--out", str(out)]) == 0
    profile = out / "profiles" / "sim-h200_vgg19_d_infer.csv"
    other = out / "profiles" / "sim-a100_vgg19_d_infer.csv"
    other.write_bytes(profile.read_bytes())
    for one in out.glob("sim-*/*.csv"):
        one.unlink()
    capsys.readouterr()
    assert main([*BENCH, *words, "--out", str(out), "--resume"]) == 1
    shown = capsys.readouterr()
    assert "is a profile with the GPU 'NVIDIA H200 (simulated)'" in shown.out
    assert "0, 1 failed" in shown.out
    assert "[2/2] task 2" in shown.err
    assert [one.parent.name for one in out.glob("sim-*/*.csv")] == [f"sim-h200_{EVERY[0]}"]
