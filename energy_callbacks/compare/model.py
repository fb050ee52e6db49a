"""A comparison as one typed, versioned record, and its JSON. ``None`` means not known."""

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
"""The basis of an interval: repeats, repeats made in turn, or blocks of one run a side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunValues:
    """One run: what of it is compared, in the units that the names of the quantities have.

    Attributes:
        source: where it was read from; a name where it was given as a report.
        values: by the name of the quantity; one that is not known is not in it.
        best_metric: the best value that the metric reached.
    """

    run_id: str
    name: str | None
    source: str
    started_unix_s: float
    values: dict[str, float]
    best_metric: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCurve:
    """Curves of one run, few points each; empty if not known.

    Attributes:
        t_s: time measured.
        power_w: of GPUs and host together.
        memory_bytes: of the GPU that uses most, else of the host.
        step: optimizer steps.
        step_energy_j: energy until each of them.
        metric_energy_j: energy until each value of the metric.
        metric: its values.
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
    """Repeats of the same thing.

    Attributes:
        means: geometric mean of each quantity that all runs know.
        metric_mean: of the best values of the metric; ``None`` if a run has none.
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
        quantity: name, with its unit: ``energy_j``.
        ratio: other over first.
        low: lower end of the 95 % interval, with what sensors of unlike cards leave open; ``None``
            for one run a side, which has no interval.
        high: upper end.
        systematic: of it, the share that unlike sensors may differ by.
        p: two-sided, of this question alone.
        p_holm: of all questions of the comparison together (Holm).
        detectable: smallest change, as a share, that this many runs would find in 80 % of cases.
        basis: what the interval comes from.
        verdict: lower and higher only if ``p_holm`` is below 0.05, the interval leaves 1 out
            and nothing makes the comparison invalid.
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
        difference: of the means of the best values; positive is better.
        low: lower end of the 95 % interval, ``None`` for one run a side.
        high: upper end.
        margin: what is still as good, in the metric's own units.
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
        group: of which; ``None`` for all.
        quantities: that are not decided because of it; all if it is empty and ``is_fatal``.
        is_fatal: whether it keeps verdicts from being given.
    """

    code: str
    message: str
    group: str | None = None
    quantities: tuple[str, ...] = ()
    is_fatal: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Groups of runs against the first of them.

    Attributes:
        metric: the user's, by which quality is judged; ``None``: energy and time alone.
        target: value of it that "to the target" means; ``None`` if no metric is known.
        primary: the headline quantity.
        answers: one sentence for each other group.
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
        """The effect of a group on a quantity, ``None`` if not known."""
        found = (one for one in self.effects if (one.group, one.quantity) == (group, quantity))
        return next(found, None)

    def answer(self, group: str) -> Effect | None:
        """The headline effect of a group: on ``primary``, else the first that is known."""
        found = [one for one in self.effects if one.group == group]
        chosen = (one for one in found if one.quantity == self.primary)
        return next(chosen, found[0] if found else None)

    def knows(self, quantity: str) -> bool:
        """Whether any run has it."""
        return any(quantity in run.values for group in self.groups for run in group.runs)

    def save(self, folder: str | Path) -> list[Path]:
        """Write ``comparison.html``, ``.json``, ``.md`` and pictures.

        Args:
            folder: made if missing.

        Returns:
            The paths.
        """
        return write_files(self, Path(folder))

    def __str__(self) -> str:
        """The comparison as a terminal shows it."""
        return as_text(self)


@cache
def _adapter() -> "TypeAdapter[Comparison]":
    from pydantic import TypeAdapter

    return TypeAdapter(Comparison)


def to_json(comparison: Comparison) -> str:
    """As JSON, a line for each part."""
    parts = _adapter().dump_python(comparison, mode="json")
    lines = [
        f'"{name}": {json.dumps(part, ensure_ascii=False, allow_nan=False)}'
        for name, part in parts.items()
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def from_json(text: str) -> Comparison:
    """The comparison that ``to_json`` wrote.

    Raises:
        JournalError: if the text is no comparison, is damaged, or is of a newer version.
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
