"""Predictors of a benchmark: one for each model, mode and set of data."""

from dataclasses import replace
from pathlib import Path

import pytest

from energy_callbacks.inference.bench.devices import SimulatedDevice
from energy_callbacks.inference.bench.predictors import Predictors, profile_file
from energy_callbacks.inference.bench.results import Results
from energy_callbacks.inference.bench.tasks import Task, own_tasks, tasks
from energy_callbacks.inference.traces import read, write

A100 = SimulatedDevice("sim:a100")
IMAGENET, CALTECH = tasks()[19], tasks()[26]  # resnet50 on the A100, 150 and 180 W


def predictors(folder: Path) -> Predictors:
    """Return predictors with small profiles."""
    return Predictors(Results(folder), points=6)


def test_caltech_does_not_use_the_predictor_of_imagenet(tmp_path: Path) -> None:
    """Each set of data has its own profile, which names it, and another fit."""
    known = predictors(tmp_path)
    first, second = known.of(IMAGENET, A100), known.of(CALTECH, A100)
    assert (first.identity["dataset"], second.identity["dataset"]) == ("imagenet", "caltech256")
    assert (first.theta != second.theta).any()
    assert profile_file(IMAGENET, A100) != profile_file(CALTECH, A100)


def test_a_profile_of_other_data_is_an_error(tmp_path: Path) -> None:
    """If the file of one set of data is given the name of another, it is not used silently."""
    predictors(tmp_path).of(IMAGENET, A100)
    source, goal = (tmp_path / profile_file(one, A100) for one in (IMAGENET, CALTECH))
    goal.write_bytes(source.read_bytes())
    with pytest.raises(ValueError, match="the data set 'imagenet', and task 27 needs 'caltech256'"):
        predictors(tmp_path).of(CALTECH, A100)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gpu_name": "Tesla P100"}, "the GPU 'Tesla P100', and task 20 needs 'NVIDIA A100"),
        ({"mode": "train"}, "the mode 'train', and task 20 needs 'infer'"),
    ],
)
def test_other_profiles(changes: dict[str, str], message: str, tmp_path: Path) -> None:
    """A profile of another GPU or mode is an error, too."""
    predictors(tmp_path).of(IMAGENET, A100)
    path = tmp_path / profile_file(IMAGENET, A100)
    write(path, [replace(row, **changes) for row in read(path)])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=message):
        predictors(tmp_path).of(IMAGENET, A100)


def test_a_profile_that_cannot_be_fitted(tmp_path: Path) -> None:
    """The message has the file and what to do: the profile is not measured again silently."""
    predictors(tmp_path).of(IMAGENET, A100)
    path = tmp_path / profile_file(IMAGENET, A100)
    write(path, [replace(row, status="timeout") for row in read(path)])
    with pytest.raises(ValueError, match=r"imagenet_infer\.csv: a fit needs .*; remove the file"):
        predictors(tmp_path).of(IMAGENET, A100)


def test_a_profile_is_measured_once(tmp_path: Path) -> None:
    """A second process reads it and fits the same."""
    first = predictors(tmp_path).of(IMAGENET, A100)
    path = tmp_path / profile_file(IMAGENET, A100)
    before = path.stat()
    second = predictors(tmp_path).of(IMAGENET, A100)
    assert (first.theta == second.theta).all()
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert [row.phase for row in read(path)] == ["anchor"] * 6 + ["static"]


def test_training_is_profiled_as_training(tmp_path: Path) -> None:
    """Its throughput is that of training steps: a third of that of inference."""
    (training,) = (one for one in own_tasks() if one.number == 111)
    device = SimulatedDevice("sim:h200")
    serving: Task = replace(training, mode="infer")
    rates = {}
    for task in (training, serving):
        predictors(tmp_path).of(task, device)
        rows = read(tmp_path / profile_file(task, device))
        assert {row.mode for row in rows} == {task.mode}
        rates[task.mode] = [row.throughput_per_s or 0.0 for row in rows if row.status == "ok"]
    assert sum(rates["train"]) == pytest.approx(sum(rates["infer"]) / 3.0, rel=0.05)


def test_too_few_points(tmp_path: Path) -> None:
    """A fit needs at least four."""
    with pytest.raises(ValueError, match="a profile needs at least 4 points, got 3"):
        Predictors(Results(tmp_path), points=3)
