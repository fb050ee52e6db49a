"""Reads the tasks of a benchmark: a model on a GPU under a fixed or changing power cap.

A file of tasks is TOML with a list ``task``, whose tables have these keys::

    id          whole number of at least 1, unique
    gpu         name of a preset without sim:, such as "a100"
    model       name of the model
    dataset     name of the data
    mode        "infer" (default) or "train"
    cap_w       fixed cap, W
    schedule    instead of cap_w: list of [iteration, cap in W]; the first iteration is 0
    iterations  number of windows; needed with schedule, otherwise chosen by the command
"""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, get_args

from energy_callbacks.inference.records import Mode

_FOLDER: Final = Path(__file__).parent
PUBLISHED: Final = _FOLDER / "published_tasks.toml"
OWN: Final = _FOLDER / "own_tasks.toml"
_REQUIRED: Final = ("id", "gpu", "model", "dataset")
_OPTIONAL: Final = ("mode", "cap_w", "schedule", "iterations")


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One task.

    Attributes:
        number: its number; 1 to 30 are those of the published benchmark.
        gpu: name of the GPU: that of a preset without ``sim:``.
        model: name of the model.
        dataset: name of the data.
        schedule: first iteration and cap in W of each part; a fixed cap has one part.
        iterations: number of iterations; ``None`` if it may be chosen.
        mode: inference or training.

    Raises:
        ValueError: if a value is out of range.
    """

    number: int
    gpu: str
    model: str
    dataset: str
    schedule: tuple[tuple[int, float], ...]
    iterations: int | None = None
    mode: Mode = "infer"

    def __post_init__(self) -> None:
        if self.number < 1:
            raise ValueError(f"id must be at least 1, got {self.number}")
        for name in ("gpu", "model", "dataset"):
            text = getattr(self, name)
            if not text or text != text.strip() or any(c.isspace() or c in "/\\" for c in text):
                raise ValueError(f"{name} must be a name without spaces and slashes, got {text!r}")
        if self.mode not in get_args(Mode):
            raise ValueError(f"mode must be one of {', '.join(get_args(Mode))}, got {self.mode!r}")
        self._check_schedule()

    def _check_schedule(self) -> None:
        starts = [start for start, _ in self.schedule]
        if not starts or starts[0] != 0 or sorted(set(starts)) != starts:
            raise ValueError(f"schedule must begin at 0 and ascend, got iterations {starts}")
        if any(not 0.0 < cap_w < float("inf") for _, cap_w in self.schedule):
            raise ValueError(f"caps must be positive and finite, got {self.schedule}")
        if self.iterations is None and len(starts) > 1:
            raise ValueError("a task with a schedule needs iterations")
        if self.iterations is not None and self.iterations <= starts[-1]:
            raise ValueError(
                f"iterations must exceed the last iteration of the schedule, {starts[-1]}, got "
                f"{self.iterations}"
            )

    @property
    def cap_w(self) -> float | None:
        """The cap in W; ``None`` if it changes."""
        return self.schedule[0][1] if len(self.schedule) == 1 else None

    @property
    def kind(self) -> str:
        """The cap in file names: ``150W``, ``power_down``, ``power_up`` or ``dynamic``."""
        caps = [cap_w for _, cap_w in self.schedule]
        if len(caps) == 1:
            return f"{caps[0]:g}W"
        if caps == sorted(caps, reverse=True):
            return "power_down"
        return "power_up" if caps == sorted(caps) else "dynamic"

    @property
    def name(self) -> str:
        """Its name in file names, such as ``20_resnet50_imagenet_150W``."""
        mode = "" if self.mode == "infer" else f"{self.mode}_"
        return f"{self.number}_{self.model}_{self.dataset}_{mode}{self.kind}"

    def lasting(self, iterations: int) -> "Task":
        """Return the task with another length; the parts of its schedule keep their ratio.

        Raises:
            ValueError: if there are fewer iterations than parts.
        """
        if iterations < len(self.schedule):
            raise ValueError(
                f"task {self.number} has {len(self.schedule)} caps and needs as many iterations, "
                f"got {iterations}"
            )
        before = self.iterations or iterations
        starts = [start * iterations // before for start, _ in self.schedule]
        for part in range(1, len(starts)):
            starts[part] = max(starts[part], starts[part - 1] + 1)
        for part in reversed(range(len(starts))):
            starts[part] = min(starts[part], iterations - (len(starts) - part))
        caps = (cap_w for _, cap_w in self.schedule)
        return replace(self, iterations=iterations, schedule=tuple(zip(starts, caps, strict=True)))

    def as_json(self) -> dict[str, Any]:
        """Return the task as values of JSON types."""
        return {
            "id": self.number,
            "gpu": self.gpu,
            "model": self.model,
            "dataset": self.dataset,
            "mode": self.mode,
            "schedule": [list(part) for part in self.schedule],
            "iterations": self.iterations,
        }


def tasks() -> tuple[Task, ...]:
    """Return the thirty tasks of the published benchmark, ordered by number.

    >>> [(one.gpu, one.model, one.dataset, one.cap_w) for one in tasks() if one.number == 20]
    [('a100', 'resnet50', 'imagenet', 150.0)]
    """
    return read(PUBLISHED)


def own_tasks() -> tuple[Task, ...]:
    """Return the tasks of this package, ordered by number."""
    return read(OWN)


def read(path: Path) -> tuple[Task, ...]:
    """Return the tasks of a file, ordered by number.

    Raises:
        ValueError: if a key or a value is wrong; the message has the file and the task.
        OSError: if the file cannot be read.
    """
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is no TOML file: {error}") from error
    if set(values) != {"task"} or not isinstance(values["task"], list) or not values["task"]:
        raise ValueError(f"{path} must have a list 'task' and nothing else, got {sorted(values)}")
    found = [_task(path, index, one) for index, one in enumerate(values["task"], start=1)]
    return ordered(found, str(path))


def ordered(found: Iterable[Task], where: str) -> tuple[Task, ...]:
    """Return tasks ordered by number.

    Raises:
        ValueError: if two tasks have the same number.
    """
    by_number: dict[int, Task] = {}
    for one in found:
        if one.number in by_number:
            raise ValueError(f"{where}: two tasks have the id {one.number}; change one of them")
        by_number[one.number] = one
    return tuple(by_number[number] for number in sorted(by_number))


def selected(
    known: Sequence[Task], *, numbers: Sequence[int] = (), start_from: int | None = None
) -> tuple[Task, ...]:
    """Return some of the tasks.

    Args:
        known: all tasks.
        numbers: numbers of the tasks; empty for all.
        start_from: only tasks with this number and higher ones; ``None`` for all.

    Raises:
        ValueError: if a number is unknown, or if no task is left.
    """
    every = {one.number for one in known}
    if unknown := [number for number in numbers if number not in every]:
        raise ValueError(
            f"there is no task {unknown[0]}; the tasks are {', '.join(map(str, sorted(every)))}"
        )
    found = tuple(
        one
        for one in known
        if (not numbers or one.number in numbers)
        and (start_from is None or one.number >= start_from)
    )
    if not found:
        raise ValueError(f"no task has a number of at least {start_from}")
    return found


def _task(path: Path, index: int, values: Any) -> Task:
    name = f"{path}, task {values.get('id', f'no. {index}') if isinstance(values, dict) else index}"
    try:
        return _parsed(values)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{name}: {error}") from error


def _parsed(values: Mapping[str, Any]) -> Task:
    if not isinstance(values, Mapping):
        raise TypeError(f"a task must be a table, got {values!r}")
    if missing := [key for key in _REQUIRED if key not in values]:
        raise ValueError(f"the key {missing[0]!r} is missing")
    if unknown := sorted(set(values) - {*_REQUIRED, *_OPTIONAL}):
        raise ValueError(
            f"the key {unknown[0]!r} is unknown; known are {', '.join((*_REQUIRED, *_OPTIONAL))}"
        )
    if ("cap_w" in values) == ("schedule" in values):
        raise ValueError("give either cap_w or schedule")
    for key in ("gpu", "model", "dataset", "mode"):
        if not isinstance(values.get(key, ""), str):
            raise TypeError(f"{key} must be a string, got {values[key]!r}")
    parts = values.get("schedule", [[0, values.get("cap_w")]])
    return Task(
        number=_whole("id", values["id"]),
        gpu=values["gpu"],
        model=values["model"],
        dataset=values["dataset"],
        mode=values.get("mode", "infer"),
        schedule=tuple(map(_part, parts)) if isinstance(parts, list) else (),
        iterations=_whole("iterations", values["iterations"]) if "iterations" in values else None,
    )


def _part(values: Any) -> tuple[int, float]:
    if not isinstance(values, list) or len(values) != 2:
        raise TypeError(f"a part of a schedule must be [iteration, cap in W], got {values!r}")
    start, cap_w = values
    if isinstance(cap_w, bool) or not isinstance(cap_w, int | float):
        raise TypeError(f"a cap must be a number of W, got {cap_w!r}")
    return _whole("an iteration", start), float(cap_w)


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number, got {value!r}")
    return value
