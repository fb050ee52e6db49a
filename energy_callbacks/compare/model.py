"""Records of a comparison, and their conversion to and from JSON."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from energy_callbacks.core.errors import JournalError
from energy_callbacks.core.extras import install_command
from energy_callbacks.report.model import schema
from energy_callbacks.report.model.display import as_text, write_files
from energy_callbacks.report.model.metrics import Direction

FORMAT = "energy_callbacks.comparison"
SCHEMA_VERSION = 2

Verdict = Literal["lower", "higher", "not resolved", "not measured"]
QualityVerdict = Literal["as good", "worse", "not resolved"]
Basis = Literal["runs", "pairs", "blocks"]
"""Data from which an interval is computed.

``runs``: the runs of two groups. ``pairs``: pairs of two runs, one of each group.
``blocks``: blocks of time of two single runs.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunValues:
    """The compared values of one run.

    Attributes:
        run_id: identifier of the run.
        name: name that the user gave to the run; ``None`` if it has no name.
        source: path from which the run was read. For an ``EnergyReport``, the name of the run, or
            ``run`` and its identifier if it has no name.
        started_unix_s: wall time at which the run began, in Unix seconds.
        values: known positive values by name of the quantity, such as ``energy_j``. The name
            contains the unit.
        best_metric: best value of the compared metric in the run; ``None`` if the run lacks the
            metric, or if no metric is compared.
    """

    run_id: str
    name: str | None
    source: str
    started_unix_s: float
    values: dict[str, float]
    best_metric: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCurve:
    """Curves of one run for the charts; a curve that is not known is empty.

    All curves have at most 120 points, except ``metric_energy_j`` and ``metric``. Energies are
    those of GPUs and host together.

    Attributes:
        t_s: end of each time bin of ``power_w`` and ``memory_bytes``, since the start of the run.
        power_w: mean power of GPUs and host together in each bin.
        memory_bytes: peak memory in each bin, of the GPU with the highest peak, or of the process
            if the memory of no GPU is known; ``None`` for a bin without readings.
        step: number of optimizer steps done, at each point of ``step_energy_j``.
        step_energy_j: energy used from the start of the run until each number in ``step``.
        metric_energy_j: energy used from the start of the run until each value in ``metric``.
        metric: values of the compared metric for which the energy is known.
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
        name: name of the group.
        runs: compared values of each run.
        curves: curves of each run, in the order of ``runs``.
        means: geometric mean of each quantity that is known for all runs of the group.
        metric_mean: arithmetic mean of the runs' ``best_metric``; ``None`` if a run lacks the
            metric, or if no metric is compared.
    """

    name: str
    runs: tuple[RunValues, ...]
    curves: tuple[RunCurve, ...]
    means: dict[str, float]
    metric_mean: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One quantity of a group, compared with that of the first group as a ratio.

    Attributes:
        group: name of the group.
        quantity: name of the quantity with its unit, such as ``energy_j``.
        ratio: geometric mean of the group divided by the geometric mean of the first group.
        low: lower end of the 95 % interval of the ratio, widened by ``systematic``. ``None`` if
            there is no interval, because a group has only one run and there are no blocks.
        high: upper end of the interval; ``None`` without an interval.
        systematic: sum of the relative bounds of both groups' systematic errors that do not cancel.
            It is 0 if the same energy counters measured both groups, and for quantities that are
            not an energy or a power.
        modelled: part of ``ratio - 1`` by which the energies differ that models have estimated.
        p: two-sided p-value of this effect alone; ``None`` without an interval.
        p_holm: p-value adjusted for all effects of the comparison (Holm); ``None`` without an
            interval.
        detectable: smallest change, as a share (0.03 is 3 %), that a comparison with this number
            of runs or blocks detects with a probability of 80 %; ``None`` without an interval.
        basis: data from which the interval is computed; ``None`` without an interval.
        verdict: ``lower`` or ``higher`` if ``p_holm`` is below 0.05, the interval does not contain
            1, and no caveat forbids a verdict. ``not measured`` if models estimate the whole energy
            of a run, or if the interval without the part ``modelled`` contains 1. Otherwise
            ``not resolved``.
    """

    group: str
    quantity: str
    ratio: float
    low: float | None
    high: float | None
    systematic: float
    modelled: float = 0.0
    p: float | None
    p_holm: float | None
    detectable: float | None
    basis: Basis | None
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """The metric of a group compared with the metric of the first group.

    Attributes:
        group: name of the group.
        difference: mean of the best values of the group minus that of the first group, with the
            sign chosen so that positive values are better.
        low: lower end of the 95 % interval of the difference; ``None`` if a group has only one run.
        high: upper end of the interval; ``None`` if a group has only one run.
        margin: largest difference, in the unit of the metric, by which a group may be worse and
            still count as equally good.
        verdict: ``as good`` if ``low`` is at least ``-margin``; ``worse`` if ``high`` is below 0
            and ``difference`` is below ``-margin``; otherwise, or if a run has not finished,
            ``not resolved``.
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
        code: short identifier, which does not change between versions.
        message: description of the limitation.
        group: name of the affected group; ``None`` for all groups.
        quantities: names of the affected quantities; empty for all quantities.
        is_fatal: whether the caveat forbids verdicts on these quantities.
    """

    code: str
    message: str
    group: str | None = None
    quantities: tuple[str, ...] = ()
    is_fatal: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Groups of runs compared with the first group.

    Attributes:
        format: name of the file format.
        schema_version: version of the file format.
        tool_version: version of this package that made the comparison.
        metric: name of the user's metric by which model quality is compared; ``None`` if there is
            none.
        direction: whether lower or higher values of the metric are better; ``None`` without a
            metric.
        target: target value of the metric. Energy and time until a run first reaches the target
            are compared. ``None`` without a metric.
        primary: name of the main quantity, which the answers are about; ``None`` if no quantity can
            be compared.
        groups: the groups, in the order given.
        effects: effects of each group except the first, one for each quantity that is known for
            all runs of this group and of the first group. Of the energies per sample, per token and
            per step, only the first known one is compared.
        qualities: comparison of the metric for each group except the first. If a run of the group
            or of the first group lacks the metric, there is no entry for the group.
        caveats: limitations of the conclusions.
        answers: the conclusion for each group except the first, one sentence each.
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
        """Return the effect of a group on a quantity; ``None`` if not known."""
        keys = (group, quantity)
        return next((one for one in self.effects if (one.group, one.quantity) == keys), None)

    def answer(self, group: str) -> Effect | None:
        """Return the effect of a group on the quantity ``primary``.

        Returns:
            The first effect of the group if its effect on ``primary`` is not known; ``None`` if the
            group has no effects.
        """
        effects = [one for one in self.effects if one.group == group]
        primary = (one for one in effects if one.quantity == self.primary)
        return next(primary, effects[0] if effects else None)

    def knows(self, quantity: str) -> bool:
        """Return whether the quantity is known for any run."""
        return any(quantity in run.values for group in self.groups for run in group.runs)

    def save(self, folder: str | Path) -> list[Path]:
        """Write ``comparison.html``, ``comparison.json``, ``comparison.md``, and charts as PNG.

        Args:
            folder: folder for the files; created if missing.

        Returns:
            The paths of the files.
        """
        return write_files(self, Path(folder))

    def __str__(self) -> str:
        """Return the comparison as text for a terminal."""
        return as_text(self)


def to_json(comparison: Comparison) -> str:
    """Return the comparison as JSON, with each top-level field on one line."""
    return schema.as_lines(schema.adapter(Comparison).dump_python(comparison, mode="json"))


def from_json(text: str) -> Comparison:
    """Return the comparison from JSON that ``to_json`` returned.

    Raises:
        JournalError: if the text is not a comparison, is damaged, or has a newer schema version.
    """
    from pydantic import ValidationError

    try:
        value: Any = json.loads(text)
    except (RecursionError, ValueError) as error:  # ValueError: also for numbers of 4300 digits
        raise JournalError(f"this is not a comparison: {error}; give a comparison.json") from error
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise JournalError("this is not a comparison; give a comparison.json that compare wrote")
    if not isinstance(value.get("schema_version"), int) or value["schema_version"] > SCHEMA_VERSION:
        raise JournalError(
            f"this comparison has schema version {value.get('schema_version')!r}, this "
            f"installation reads up to {SCHEMA_VERSION}; run: {install_command(upgrade=True)}"
        )
    try:
        return schema.from_record(Comparison, value)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise JournalError(
            f"this comparison is damaged: {place}: {first['msg']}; compare the runs again"
        ) from error
