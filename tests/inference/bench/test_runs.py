"""The runs of a benchmark, their order and their files."""

import pytest

from energy_callbacks.inference.bench.runs import Run, runs
from energy_callbacks.inference.bench.tasks import own_tasks, tasks

ALGORITHMS = ["a", "b", "c"]


def test_one_algorithm_after_the_other() -> None:
    """This is the published order: all tasks with one algorithm, then all with the next."""
    found = runs(tasks()[:2], ALGORITHMS[:2], 2)
    assert [(one.algorithm, one.task.number, one.seed) for one in found] == [
        *(("a", 1, 0), ("a", 1, 1), ("a", 2, 0), ("a", 2, 1)),
        *(("b", 1, 0), ("b", 1, 1), ("b", 2, 0), ("b", 2, 1)),
    ]


def test_interleaved_runs_are_random_blocks() -> None:
    """A block has each algorithm once, in an order that differs between blocks."""
    found = runs(tasks()[:4], ALGORITHMS, 5, interleave=True)
    blocks = [found[at : at + 3] for at in range(0, len(found), 3)]
    keys = [{(one.task.number, one.seed) for one in block} for block in blocks]
    assert keys == [{(task, seed)} for task in (1, 2, 3, 4) for seed in range(5)]
    orders = [tuple(one.algorithm for one in block) for block in blocks]
    assert all(sorted(order) == ALGORITHMS for order in orders)
    assert len(set(orders)) > 3
    assert set(found) == set(runs(tasks()[:4], ALGORITHMS, 5))


def test_the_order_is_always_the_same() -> None:
    """A benchmark that is continued has the order of the one that was interrupted."""
    first = runs(tasks(), ALGORITHMS, 3, interleave=True)
    assert runs(tasks(), ALGORITHMS, 3, interleave=True) == first


def test_every_run_has_its_file() -> None:
    """No two runs write to the same file; training is in the name."""
    found = runs([*tasks(), *own_tasks()], ALGORITHMS, 2)
    assert len({one.file("gpu") for one in found}) == len(found)
    (training,) = (one for one in own_tasks() if one.number == 116)
    path = Run(task=training, algorithm="pctodl", seed=0).file("v100")
    assert path.as_posix() == "v100_pctodl/116_shufflenetv2_cifar100_train_175W.csv"


def test_wrong_arguments() -> None:
    """There must be seeds and different algorithms."""
    with pytest.raises(ValueError, match="seeds must be at least 1, got 0"):
        runs(tasks(), ALGORITHMS, 0)
    with pytest.raises(ValueError, match="must be different names"):
        runs(tasks(), ["a", "a"], 1)
