"""The record of a comparison and its JSON. ``None`` means not known."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from energy_callbacks.core.errors import JournalError
from energy_callbacks.report.model.display import as_text, write_files
from energy_callbacks.report.model.metrics import Direction

if TYPE_CHECKING:
    from pydantic import TypeAdapter

FORMAT = "energy_callbacks.comparison"
SCHEMA_VERSION = 1

Verdict = Literal["lower", "higher", "not resolved"]
QualityVerdict = Literal["as good", "worse", "not resolved"]
Basis = Literal["runs", "pairs", "blocks"]
"""The basis of an interval: repeats, pairs of repeats made in turn, or blocks of single runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunValues:
    """The compared values of one run.

    Attributes:
        source: path that the run was read from; its name if it was given as a report.
        values: value by name of the quantity, which includes the unit; only known quantities.
        best_metric: the best value that the metric reached; ``None`` if the run lacks the metric.
    """

    run_id: str
    name: str | None
    source: str
    started_unix_s: float
    values: dict[str, float]
    best_metric: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCurve:
    """Curves of one run with few points each; empty if not known.

    Attributes:
        t_s: ends of the bins of ``power_w`` and ``memory_bytes``.
        power_w: power of GPUs and host together.
        memory_bytes: memory of the GPU that uses most, or else of the host.
        step: numbers of optimizer steps.
        step_energy_j: energy used until each of these steps.
        metric_energy_j: energy used until each value of the metric.
        metric: values of the metric.
    """

    t_s: tuple[float, ...]
    power_w: tuple[float, ...]
    memory_bytes: tuple[float | None, ...]
    step: tuple[int, ...]
    step_energy_j: tuple[float, ...]
    metric_energy_j: tuple[float, ...]
    metric: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Runs that repeat the same training.

    Attributes:
        means: geometric mean of each quantity that all runs know.
        metric_mean: mean of the best values of the metric; ``None`` if a run lacks the metric.
    """

    name: str
    runs: tuple[RunValues, ...]
    curves: tuple[RunCurve, ...]
    means: dict[str, float]
    metric_mean: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """The effect of a group on one quantity, relative to the first group.

    Attributes:
        group: name of the other group.
        quantity: name of the quantity with its unit, such as ``energy_j``.
        ratio: mean of the other group over that of the first.
        low: lower end of the 95 % interval, including the error of unlike sensors; ``None`` if
            there is no interval, as for short single runs.
        high: upper end.
        systematic: sum of the relative error bounds of both groups' sensors if they are unlike.
        p: two-sided p-value of this question alone.
        p_holm: p-value adjusted for all questions of the comparison (Holm).
        detectable: smallest change, as a share, that this number of runs finds in 80 % of cases.
        basis: basis of the interval.
        verdict: lower or higher if ``p_holm`` is below 0.05, the interval does not contain 1, and
            no caveat forbids a verdict.
    """

    group: str
    quantity: str
    ratio: float
    low: float | None
    high: float | None
    systematic: float
    p: float | None
    p_holm: float | None
    detectable: float | None
    basis: Basis | None
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """Whether a group's metric is as good as that of the first.

    Attributes:
        difference: difference of the means of the best values; positive is better.
        low: lower end of the 95 % interval; ``None`` for single runs.
        high: upper end.
        margin: how much worse is still as good, in the metric's unit.
    """

    group: str
    difference: float
    low: float | None
    high: float | None
    margin: float
    verdict: QualityVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Caveat:
    """A limitation of the conclusions of a comparison.

    Attributes:
        group: name of the group; ``None`` for all groups.
        quantities: the quantities that it is about; empty for all.
        is_fatal: whether it forbids verdicts on these quantities.
    """

    code: str
    message: str
    group: str | None = None
    quantities: tuple[str, ...] = ()
    is_fatal: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Groups of runs compared with the first of them.

    Attributes:
        metric: the user's metric that decides on quality; ``None`` if there is none.
        direction: its better direction.
        target: its target value, up to which energy and time are compared.
        primary: the headline quantity; ``None`` if nothing can be compared.
        answers: one sentence for each group but the first.
    """

    format: Literal["energy_callbacks.comparison"] = "energy_callbacks.comparison"
    schema_version: int = SCHEMA_VERSION
    tool_version: str
    metric: str | None
    direction: Direction | None
    target: float | None
    primary: str | None
    groups: tuple[Group, ...]
    effects: tuple[Effect, ...]
    qualities: tuple[Quality, ...]
    caveats: tuple[Caveat, ...]
    answers: tuple[str, ...]

    def effect(self, group: str, quantity: str) -> Effect | None:
        """Returns the effect of a group on a quantity, ``None`` if not known."""
        keys = (group, quantity)
        return next((one for one in self.effects if (one.group, one.quantity) == keys), None)

    def answer(self, group: str) -> Effect | None:
        """Returns the effect of a group on ``primary``, or else its first known effect."""
        effects = [one for one in self.effects if one.group == group]
        primary = (one for one in effects if one.quantity == self.primary)
        return next(primary, effects[0] if effects else None)

    def knows(self, quantity: str) -> bool:
        """Whether any run knows the quantity."""
        return any(quantity in run.values for group in self.groups for run in group.runs)

    def save(self, folder: str | Path) -> list[Path]:
        """Write ``comparison.html``, ``.json``, ``.md`` and pictures.

        Args:
            folder: created if missing.

        Returns:
            The paths of the files.
        """
        return write_files(self, Path(folder))

    def __str__(self) -> str:
        """Returns the comparison as text for a terminal."""
        return as_text(self)


@cache
def _adapter() -> "TypeAdapter[Comparison]":
    from pydantic import TypeAdapter

    return TypeAdapter(Comparison)


def to_json(comparison: Comparison) -> str:
    """Returns the comparison as JSON, with each top-level field on one line."""
    parts = _adapter().dump_python(comparison, mode="json")
    lines = [
        f'"{name}": {json.dumps(part, ensure_ascii=False, allow_nan=False)}'
        for name, part in parts.items()
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def from_json(text: str) -> Comparison:
    """Returns the comparison that ``to_json`` wrote.

    Raises:
        JournalError: if the text is not a comparison, is damaged, or has a newer schema version.
    """
    from pydantic import ValidationError

    try:
        value: Any = json.loads(text)
    except json.JSONDecodeError as error:
        raise JournalError(f"this is not a comparison: {error}; give a comparison.json") from error
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise JournalError("this is not a comparison; give a comparison.json that compare wrote")
    if not isinstance(value.get("schema_version"), int) or value["schema_version"] > SCHEMA_VERSION:
        raise JournalError(
            f"this comparison has schema version {value.get('schema_version')!r}, this "
            f"installation reads up to {SCHEMA_VERSION}; run: pip install --upgrade "
            "energy-callbacks"
        )
    try:
        return _adapter().validate_python(value)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise JournalError(
            f"this comparison is damaged: {place}: {first['msg']}; compare the runs again"
        ) from error
