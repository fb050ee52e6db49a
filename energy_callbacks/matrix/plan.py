"""A matrix and its jobs in the order in which they run."""

import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from string import Formatter
from types import MappingProxyType
from typing import Any, Final, Literal, get_args

from energy_callbacks.core.config import EnergyConfig
from energy_callbacks.matrix.naming import folder_name
from energy_callbacks.report.model.metrics import Direction, direction

EngineName = Literal["local", "slurm", "ray"]
Value = str | int | float | bool
REPEAT: Final = "repeat"
_NO_OPTIONS: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixJob:
    """One command with its parameters, to be measured once.

    Attributes:
        configuration: its parameters, for people, such as ``adam-16``.
        parameters: name to the text that stands in the command.
        repeat: from 1.
        words: program and arguments.
        environment: added to that of the caller.
    """

    configuration: str
    parameters: Mapping[str, str]
    repeat: int
    words: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """Its place below ``jobs`` of the results folder, and what it is known by."""
        return Path(folder_name(self.parameters), f"repeat-{self.repeat}")

    def __str__(self) -> str:
        """For people: configuration and repeat."""
        return f"{self.configuration} #{self.repeat}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixPlan:
    """A matrix to run.

    Args:
        name: of the matrix.
        command: a line as a shell would read it, or its words; ``{name}`` stands for a parameter,
            ``{repeat}`` for the number of the repeat, from 1; ``{{`` and ``}}`` are braces. Values
            are put into the words, after the line was cut into these.
        parameters: the values of each name.
        repeats: of each configuration.
        cool_down_s: pause between two jobs on the same device.
        metric: of the command's training, by its name in the report.
        metric_goal: which way of it is better; ``None`` reads it from the name.
        baseline: the configuration that the others are compared with; ``None`` for the cheapest.
        engine: what runs the jobs.
        graphs: whether each job's charts are saved as PNG.
        env: environment variables, with placeholders as in the command.
        energy: ``country``, ``region``, ``pue`` and ``price_per_kwh`` as ``run`` takes them.
        folder: in which the command runs.

    Raises:
        ValueError: for a value that cannot be run.
        TypeError: for a value of the wrong type.
    """

    name: str
    command: str | Sequence[str]
    parameters: Mapping[str, Sequence[Value]]
    repeats: int = 3
    cool_down_s: float = 20.0
    metric: str | None = None
    metric_goal: Literal["min", "max"] | None = None
    baseline: Mapping[str, Value] | None = None
    engine: EngineName = "local"
    graphs: bool = True
    env: Mapping[str, str] = field(default_factory=dict)
    energy: Mapping[str, Any] = field(default_factory=dict)
    folder: Path = field(default_factory=Path)

    def __post_init__(self) -> None:
        for name in ("name", "metric"):
            _check_text(name, getattr(self, name), optional=name == "metric")
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}", self.name):
            raise ValueError(
                f"name = {self.name!r} is to be a folder; use letters, digits, ., _, + and -"
            )
        _check_whole("repeats", self.repeats)
        _check_seconds("cool_down_s", self.cool_down_s)
        _check_one_of("engine", self.engine, get_args(EngineName))
        _check_one_of("metric_goal", self.metric_goal, (None, "min", "max"))
        if self.metric is not None and self.goal is None:
            raise ValueError(
                f"whether {self.metric!r} is better when it is lower or higher is not clear from "
                'its name; add metric_goal = "min" or metric_goal = "max"'
            )
        if not isinstance(self.graphs, bool):
            raise TypeError(f"graphs must be true or false, got {self.graphs!r}")
        _check_parameters(self.parameters)
        for name, value in self.env.items():
            _check_text(f"[env] {name}", value, optional=False)
        EnergyConfig(**self.energy)
        _check_placeholders(self)
        if self.baseline is not None:
            _check_baseline(self.baseline, self.parameters)

    @property
    def goal(self) -> Direction | None:
        """Which way of the metric is better; ``None`` without a metric."""
        if self.metric is None or self.metric_goal is None:
            return None if self.metric is None else direction(self.metric)
        return "lower" if self.metric_goal == "min" else "higher"

    @property
    def words(self) -> tuple[str, ...]:
        """The command, with its placeholders."""
        if isinstance(self.command, str):
            return tuple(shlex.split(self.command))
        return tuple(self.command)

    @property
    def configurations(self) -> list[dict[str, str]]:
        """Each combination of the parameters' values, in the order of the file."""
        texts = [[as_text(value) for value in values] for values in self.parameters.values()]
        return [dict(zip(self.parameters, row, strict=True)) for row in product(*texts)]

    @property
    def baseline_name(self) -> str | None:
        """The baseline as ``MatrixJob.configuration`` has it."""
        if self.baseline is None:
            return None
        return self._told({name: as_text(self.baseline[name]) for name in self.parameters})

    def _told(self, parameters: Mapping[str, str]) -> str:
        """The values alone, if that identifies the configurations."""
        short = ["-".join(one.values()) for one in self.configurations]
        if len(set(short)) == len(short):
            return "-".join(parameters.values())
        return " ".join(f"{name}={value}" for name, value in parameters.items())

    def jobs(self) -> list[MatrixJob]:
        """All jobs, repeat by repeat, each second one backwards: A B, B A.

        What drifts evenly with time, such as warmth, then meets each configuration alike: over
        an even number of repeats all have the same mean place in the order.
        """
        return [
            self._job(parameters, repeat)
            for repeat in range(1, self.repeats + 1)
            for parameters in self.configurations[:: 1 if repeat % 2 else -1]
        ]

    def _job(self, parameters: Mapping[str, str], repeat: int) -> MatrixJob:
        known = {**parameters, REPEAT: str(repeat)}
        return MatrixJob(
            configuration=self._told(parameters),
            parameters=parameters,
            repeat=repeat,
            words=tuple(_filled(word, known) for word in self.words),
            environment={name: _filled(value, known) for name, value in self.env.items()},
        )


def as_text(value: Value) -> str:
    """A value as it stands in a command.

    >>> as_text(True), as_text(1e-3), as_text("adam")
    ('true', '0.001', 'adam')
    """
    return str(value).lower() if isinstance(value, bool) else str(value)


def _placeholders(word: str) -> Iterator[str]:
    """The names in braces.

    Raises:
        ValueError: for braces that are no placeholder.
    """
    hint = "write a literal brace as {{ or }}"
    try:
        parts = list(Formatter().parse(word))
    except ValueError as error:
        raise ValueError(f"{word!r} is not understood ({error}); {hint}") from error
    for _, name, form, conversion in parts:
        if name is None:
            continue
        if not name.isidentifier() or form or conversion:
            raise ValueError(
                f"{word!r} has braces with more than the name of a parameter in them; {hint}"
            )
        yield name


def _filled(word: str, known: Mapping[str, str]) -> str:
    return word.format_map(known)


def _check_placeholders(plan: MatrixPlan) -> None:
    _check_command(plan.command)
    used = {name for word in (*plan.words, *plan.env.values()) for name in _placeholders(word)}
    known = {*plan.parameters, REPEAT}
    if unknown := sorted(used - known):
        raise ValueError(
            f"{{{unknown[0]}}} in the command is no parameter, of which there are "
            f"{', '.join(sorted(known))}; add it to [parameters], or write {{{{ and }}}} for braces"
        )
    if idle := sorted(set(plan.parameters) - used):
        raise ValueError(
            f"the parameter {idle[0]!r} is nowhere in the command, so its values would all be the "
            f"same; write {{{idle[0]}}} where it belongs"
        )


def _check_command(command: object) -> None:
    if isinstance(command, str):
        try:
            words: Sequence[object] = shlex.split(command)
        except ValueError as error:
            raise ValueError(
                f"command = {command!r} is not understood ({error}); check its quotes, or give a "
                "list of words"
            ) from error
    elif isinstance(command, Sequence):
        words = command
    else:
        words = ()
    if not words or not all(isinstance(word, str) for word in words):
        raise ValueError(
            f"command must be a line or a list of words, got {command!r}; "
            'write command = "python train.py --lr {lr}"'
        )


def _check_parameters(parameters: Mapping[str, Sequence[Value]]) -> None:
    if not parameters:
        raise ValueError(
            "[parameters] is empty; give names with lists of values, as in lr = [1, 2]"
        )
    for name, values in parameters.items():
        if not re.fullmatch(r"[A-Za-z]\w*", name) or name == REPEAT:
            raise ValueError(
                f"a parameter cannot be called {name!r}; take letters, digits and _, not 'repeat'"
            )
        if not isinstance(values, Sequence) or isinstance(values, str) or not values:
            raise ValueError(
                f"the parameter {name!r} needs a list of values, got {values!r}; "
                f"write {name} = [1, 2]"
            )
        for value in values:
            if not isinstance(value, Value):
                raise TypeError(
                    f"the parameter {name!r} has the value {value!r}; "
                    "take text, numbers, true or false"
                )
        texts = [as_text(value) for value in values]
        if len(set(texts)) < len(texts):
            raise ValueError(f"the parameter {name!r} has a value twice: {', '.join(texts)}")


def _check_baseline(
    baseline: Mapping[str, Value], parameters: Mapping[str, Sequence[Value]]
) -> None:
    for name in {**parameters, **baseline}:
        values = [as_text(value) for value in parameters.get(name, ())]
        if name not in baseline or as_text(baseline[name]) not in values:
            raise ValueError(
                f"[baseline] must name one value of each parameter; {name!r} is "
                f"{baseline.get(name, 'left out')!r}, and there are {', '.join(values) or 'none'}"
            )


def _check_text(name: str, value: object, *, optional: bool) -> None:
    if value is None and optional:
        return
    if not isinstance(value, str) or not value.strip():
        raise TypeError(f'{name} must be a text, got {value!r}; write it in quotes, as "{name}"')


def _check_whole(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")


def _check_seconds(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ValueError(f"{name} must be a number of seconds, got {value!r}; 0 is for none")


def _check_one_of(name: str, value: object, known: Sequence[object]) -> None:
    if value not in known:
        words = ", ".join(f'"{one}"' for one in known if one is not None)
        raise ValueError(f"{name} must be one of {words}, got {value!r}")
