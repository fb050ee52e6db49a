"""The runs of a benchmark: every algorithm on every task with every seed, and their order."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from energy_callbacks.inference.bench.tasks import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One algorithm on one task with one seed.

    Attributes:
        task: the task.
        algorithm: name of the controller.
        seed: seed of a simulated GPU; on a real one, the number of the repeat, from 0.
    """

    task: Task
    algorithm: str
    seed: int

    def file(self, gpu: str) -> Path:
        """Return the path of the rows in the results folder: for seed 0, the published name.

        Args:
            gpu: name of the GPU in file names.

        >>> from energy_callbacks.inference.bench.tasks import tasks
        >>> Run(task=tasks()[19], algorithm="morak", seed=0).file("a100").as_posix()
        'a100_morak/20_resnet50_imagenet_150W.csv'
        >>> Run(task=tasks()[28], algorithm="morak", seed=2).file("a100").name
        '29_resnet50_imagenet_power_down_seed2.csv'
        """
        seed = f"_seed{self.seed}" if self.seed else ""
        return Path(f"{gpu}_{self.algorithm}", f"{self.task.name}{seed}.csv")

    def __str__(self) -> str:
        """Return a short text for messages."""
        return f"task {self.task.number}, {self.algorithm}, seed {self.seed}"


def runs(
    tasks: Sequence[Task], algorithms: Sequence[str], seeds: int, *, interleave: bool = False
) -> list[Run]:
    """Return all runs in the order in which they are made.

    Args:
        tasks: the tasks.
        algorithms: names of the controllers.
        seeds: number of seeds of each task and algorithm.
        interleave: ``False`` for one algorithm after the other, as published. ``True`` for
            randomised blocks: a block is a seed of a task, in which every algorithm runs once. The
            order in a block is random, but always the same for the same arguments. A drift, such
            as of the temperature, then affects all algorithms alike.

    Raises:
        ValueError: if there are no algorithms or seeds, or if an algorithm is given twice.
    """
    if seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {seeds}")
    if not algorithms or len(set(algorithms)) < len(algorithms):
        raise ValueError(f"algorithms must be different names, got {list(algorithms)}")
    if not interleave:
        return [
            Run(task=task, algorithm=algorithm, seed=seed)
            for algorithm, task, seed in product(algorithms, tasks, range(seeds))
        ]
    return [
        Run(task=task, algorithm=algorithm, seed=seed)
        for task, seed in product(tasks, range(seeds))
        for algorithm in _shuffled(algorithms, f"{task.number}/{seed}")
    ]


def _shuffled(algorithms: Sequence[str], block: str) -> list[str]:
    return random.Random(block).sample(algorithms, len(algorithms))  # noqa: S311 - no secret
