"""The thirty tasks of the published benchmark: a model on a GPU under a fixed or changing cap."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

_FILE = Path(__file__).with_name("tasks.toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One task.

    Attributes:
        number: its number in the published benchmark, from 1.
        gpu: ``"a100"`` or ``"rtx3080ti"``.
        model: name of the model.
        dataset: name of the data.
        schedule: first iteration and cap in W of each part; a fixed cap has one part.
        iterations: number of iterations; ``None`` if it may be chosen.
    """

    number: int
    gpu: str
    model: str
    dataset: str
    schedule: tuple[tuple[int, float], ...]
    iterations: int | None = None

    @property
    def cap_w(self) -> float | None:
        """The cap in W; ``None`` if it changes."""
        return self.schedule[0][1] if len(self.schedule) == 1 else None


def tasks() -> tuple[Task, ...]:
    """Return all tasks, ordered by number.

    >>> [(one.gpu, one.model, one.dataset, one.cap_w) for one in tasks() if one.number == 20]
    [('a100', 'resnet50', 'imagenet', 150.0)]
    """
    values = tomllib.loads(_FILE.read_text(encoding="utf-8"))
    fixed = [
        Task(
            number=group["first"] + index,
            gpu=group["gpu"],
            model=model,
            dataset=group["dataset"],
            schedule=((0, float(cap_w)),),
        )
        for group in values["fixed"]
        for index, (model, cap_w) in enumerate(zip(values["models"], group["caps_w"], strict=True))
    ]
    changing = [
        Task(
            **{**one, "schedule": tuple((start, float(cap_w)) for start, cap_w in one["schedule"])}
        )
        for one in values["dynamic"]
    ]
    return tuple(sorted([*fixed, *changing], key=lambda one: one.number))
