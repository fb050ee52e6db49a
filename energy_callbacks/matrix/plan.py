"""Defines the plan of a matrix: checks the settings, and lists the jobs in order of execution.

A matrix measures one command with several values of its parameters. A configuration is one
combination of values. Each configuration has several repeats; a job is one repeat of one
configuration.
"""

import hashlib
import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from string import Formatter
from typing import Any, Final, Literal, get_args

from energy_callbacks.core.settings.checks import check_settings
from energy_callbacks.report.model.metrics import Direction, direction

EngineName = Literal["local", "slurm", "ray"]
Value = str | int | float | bool
REPEAT: Final = "repeat"
_DIRECTIONS: Final[Mapping[str | None, Direction]] = {"min": "lower", "max": "higher"}
# Maximum length of a folder's name without the hash, in characters; most file systems allow 255
# bytes.
_LONGEST_NAME: Final = 120
_DIGEST_DIGITS: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixJob:
    """One repeat of the command, with one value for each parameter.

    Attributes:
        configuration: short name of the combination of values, such as ``adam-16``.
        parameters: parameter names to values, as text.
        repeat: number of the repeat, from 1.
        words: program and arguments, with values in place of placeholders.
        environment: environment variables of the command, added to those of the calling process.
    """

    configuration: str
    parameters: Mapping[str, str]
    repeat: int
    words: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """Path of the job's folder, relative to ``jobs`` in the results folder; unique per job."""
        return Path(folder_name(self.parameters), f"repeat-{self.repeat}")

    def __str__(self) -> str:
        """Return the configuration and the number of the repeat, such as ``adam-16 #1``."""
        return f"{self.configuration} #{self.repeat}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixPlan:
    """The settings of a matrix.

    Args:
        name: name of the matrix and of its results folder.
        command: a command line with shell quoting, or a list of words. ``{name}`` is replaced by
            the value of the parameter ``name``, ``{repeat}`` by the number of the repeat, from 1.
            ``{{`` and ``}}`` are literal braces. The line is split before values are inserted, so
            that a value with spaces stays one word.
        parameters: values to try, by name of the parameter.
        repeats: number of jobs of each configuration.
        cool_down_s: pause in seconds between two jobs on the same device.
        metric: name, as in the report, of the metric that measures the quality of the training;
            ``None`` compares the energy alone.
        metric_goal: ``min`` if lower values of the metric are better, ``max`` if higher values are;
            ``None`` infers the goal from the name of the metric.
        baseline: the configuration to compare the others with, as parameter names to values;
            ``None`` is the cheapest configuration (see ``verdict.py``).
        engine: name of the engine that runs the jobs.
        graphs: whether to save the charts of each job as PNG, if matplotlib is installed.
        env: environment variables of the command; values may have placeholders, as in ``command``.
        energy: settings ``country``, ``region``, ``pue``, ``price_per_kwh`` and ``currency``, as in
            ``energy-callbacks run``.
        folder: working directory of the command.

    Raises:
        ValueError: if a value is invalid.
        TypeError: if a value has the wrong type.
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
        _check_text("name", self.name)
        if self.metric is not None:
            _check_text("metric", self.metric)
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}", self.name):
            raise ValueError(
                f"name = {self.name!r} becomes the name of a folder; use letters, digits, ., _, "
                "+ and -"
            )
        check_whole("repeats", self.repeats)
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
            _check_text(f"[env] {name}", value)
        check_settings(**self.energy)
        _check_placeholders(self)
        if self.baseline is not None:
            _check_baseline(self.baseline, self.parameters)

    @property
    def goal(self) -> Direction | None:
        """Whether ``lower`` or ``higher`` values of the metric are better.

        ``None`` if there is no metric, or if its goal is unknown.
        """
        if self.metric is None:
            return None
        return _DIRECTIONS.get(self.metric_goal) or direction(self.metric)

    @property
    def words(self) -> tuple[str, ...]:
        """The words of the command, with placeholders."""
        command = self.command
        return tuple(shlex.split(command) if isinstance(command, str) else command)

    @property
    def configurations(self) -> list[dict[str, str]]:
        """All combinations of values by parameter name; the last parameter varies fastest."""
        texts = [[as_text(value) for value in values] for values in self.parameters.values()]
        return [dict(zip(self.parameters, row, strict=True)) for row in product(*texts)]

    @property
    def baseline_name(self) -> str | None:
        """Name of the baseline, as in ``MatrixJob.configuration``; ``None`` without a baseline."""
        if self.baseline is None:
            return None
        return self._label({name: as_text(self.baseline[name]) for name in self.parameters})

    def _label(self, parameters: Mapping[str, str]) -> str:
        """Return the name of a configuration: its values, such as ``adam-16``.

        If two configurations would then have the same name, the names of parameters are added.
        """
        short = ["-".join(one.values()) for one in self.configurations]
        if len(set(short)) == len(short):
            return "-".join(parameters.values())
        return " ".join(f"{name}={value}" for name, value in parameters.items())

    def jobs(self) -> list[MatrixJob]:
        """Return all jobs in order: repeat by repeat, with every second repeat reversed (A B, B A).

        If the number of repeats is even, all configurations have the same mean position in this
        order. A linear drift over time, such as warming, therefore affects them equally.
        """
        return [
            self._job(parameters, repeat)
            for repeat in range(1, self.repeats + 1)
            for parameters in self.configurations[:: 1 if repeat % 2 else -1]
        ]

    def _job(self, parameters: Mapping[str, str], repeat: int) -> MatrixJob:
        values = {**parameters, REPEAT: str(repeat)}
        return MatrixJob(
            configuration=self._label(parameters),
            parameters=parameters,
            repeat=repeat,
            words=tuple(word.format_map(values) for word in self.words),
            environment={name: text.format_map(values) for name, text in self.env.items()},
        )


def counted(number: int) -> str:
    """Return a number of jobs as text.

    >>> counted(1), counted(2)
    ('1 job', '2 jobs')
    """
    return f"{number} job{'' if number == 1 else 's'}"


def as_text(value: Value) -> str:
    """Return a value of a parameter as text for the command.

    >>> as_text(True), as_text(1e-3), as_text("adam")
    ('true', '0.001', 'adam')
    """
    return str(value).lower() if isinstance(value, bool) else str(value)


def folder_name(parameters: Mapping[str, str]) -> str:
    """Return the parameters as a folder name, ``name=value,name=value``.

    Unsafe characters are replaced, and long names are cut. A changed name ends with a hash of the
    parameters, which makes it unique.

    >>> folder_name({"optimizer": "adam", "lr": "1e-3"})
    'optimizer=adam,lr=1e-3'
    >>> folder_name({"model": "a/b"}) == folder_name({"model": "a_b"})
    False
    """
    items = parameters.items()
    exact = ",".join(f"{name}={value}" for name, value in items)
    safe = ",".join(f"{name}={re.sub('[^A-Za-z0-9._+-]+', '_', value)}" for name, value in items)
    if safe == exact and len(exact) <= _LONGEST_NAME:
        return exact
    digest = hashlib.sha256(repr(list(items)).encode()).hexdigest()[:_DIGEST_DIGITS]
    return f"{safe[:_LONGEST_NAME]}~{digest}"


def _placeholders(word: str) -> Iterator[str]:
    """Yield the names of the placeholders ``{name}`` in a word.

    Raises:
        ValueError: if braces contain anything other than a name.
    """
    hint = "write a literal brace as {{ or }}"
    try:
        parts = list(Formatter().parse(word))
    except ValueError as error:
        raise ValueError(f"{word!r} cannot be parsed ({error}); {hint}") from error
    for _, name, form, conversion in parts:
        if name is None:
            continue
        if not name.isidentifier() or form or conversion:
            raise ValueError(
                f"{word!r} contains braces with more than the name of a parameter; {hint}"
            )
        yield name


def _check_placeholders(plan: MatrixPlan) -> None:
    _check_command(plan.command)
    used = {name for word in (*plan.words, *plan.env.values()) for name in _placeholders(word)}
    known = {*plan.parameters, REPEAT}
    if unknown := sorted(used - known):
        raise ValueError(
            f"{{{unknown[0]}}} in the command is not a parameter; the parameters are "
            f"{', '.join(sorted(known))}; add it to [parameters], or write {{{{ and }}}} for "
            "braces"
        )
    if idle := sorted(set(plan.parameters) - used):
        raise ValueError(
            f"the parameter {idle[0]!r} is not used in the command, so all its values would run "
            f"the same job; write {{{idle[0]}}} where its value belongs"
        )


def _check_command(command: object) -> None:
    words = command
    if isinstance(command, str):
        try:
            words = shlex.split(command)
        except ValueError as error:
            raise ValueError(
                f"command = {command!r} cannot be parsed ({error}); check its quotes, or give a "
                "list of words"
            ) from error
    is_list = isinstance(words, Sequence) and all(isinstance(word, str) for word in words)
    if not is_list or not words:
        raise ValueError(
            f"command must be a string or a list of words, got {command!r}; write command = "
            '"python train.py --lr {lr}"'
        )


def _check_parameters(parameters: Mapping[str, Sequence[Value]]) -> None:
    if not parameters:
        raise ValueError(
            "[parameters] is empty; give names with lists of values, as in lr = [1, 2]"
        )
    for name, values in parameters.items():
        if not re.fullmatch(r"[A-Za-z]\w*", name) or name == REPEAT:
            raise ValueError(
                f"a parameter cannot be named {name!r}; use letters, digits and _, and not the "
                "name 'repeat'"
            )
        if not isinstance(values, Sequence) or isinstance(values, str) or not values:
            raise ValueError(
                f"the parameter {name!r} needs a list of values, got {values!r}; "
                f"write {name} = [1, 2]"
            )
        for value in values:
            if not isinstance(value, Value):
                raise TypeError(
                    f"the parameter {name!r} has the value {value!r}; use strings, numbers, "
                    "true or false"
                )
        texts = [as_text(value) for value in values]
        if len(set(texts)) < len(texts):
            raise ValueError(f"the parameter {name!r} contains a value twice: {', '.join(texts)}")


def _check_baseline(
    baseline: Mapping[str, Value], parameters: Mapping[str, Sequence[Value]]
) -> None:
    for name in {**parameters, **baseline}:
        values = [as_text(value) for value in parameters.get(name, ())]
        if name not in baseline or as_text(baseline[name]) not in values:
            raise ValueError(
                f"[baseline] must contain one value of each parameter; {name!r} is "
                f"{baseline.get(name, 'left out')!r}, and its values are "
                f"{', '.join(values) or 'none'}"
            )


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str) or not value.strip():
        raise TypeError(f'{name} must be a string, got {value!r}; write it in quotes, as "{name}"')


def is_whole(value: object, least: int) -> bool:
    """Return whether a value is an integer of at least ``least``; ``False`` for a ``bool``."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def check_whole(name: str, value: object, least: int = 1, hint: str = "") -> None:
    """Check that a value is an integer of at least ``least``; a ``bool`` is refused.

    Raises:
        ValueError: if the check fails; the message ends with ``hint``.
    """
    if not is_whole(value, least):
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}{hint}")


def _check_seconds(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ValueError(f"{name} must be a number of seconds, got {value!r}; 0 means none")


def _check_one_of(name: str, value: object, known: Sequence[object]) -> None:
    if value not in known:
        words = ", ".join(f'"{one}"' for one in known if one is not None)
        raise ValueError(f"{name} must be one of {words}, got {value!r}")
