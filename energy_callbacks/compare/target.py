"""Chooses the metric of a comparison and its target; finds the energy and time to the target."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

from energy_callbacks.report.model.metrics import Direction, Metric
from energy_callbacks.report.model.schema import EnergyReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A metric, the direction in which it gets better, and its target value."""

    metric: str
    direction: Direction
    target: float

    @property
    def sign(self) -> float:
        """1 if higher values are better, otherwise -1."""
        return 1.0 if self.direction == "higher" else -1.0


def goal(
    reports: Sequence[EnergyReport],
    metric: str | None,
    direction: Direction | None,
    target: float | None,
) -> Goal | None:
    """Return the metric by which quality is compared, with its better direction and target.

    Args:
        reports: the reports of all groups.
        metric: name of the metric; ``None`` selects a validation metric that all runs have and
            whose better direction is known.
        direction: the better direction; ``None`` infers it from the name of the metric.
        target: the target value; ``None`` selects the best value that every finished run reached,
            or every run if none has finished. Runs without the metric do not count.

    Returns:
        The metric; ``None`` if ``metric`` is ``None`` and there is no metric to select.

    Raises:
        ValueError: if no run has the metric, if the better direction of the metric is not known, if
            a direction or target is invalid, or if one is given, but no metric is given or can be
            selected.
    """
    if direction not in (None, *get_args(Direction)):
        raise ValueError(
            f"goal must be 'lower' or 'higher', got {direction!r}; give the one that is better"
        )
    if target is not None and not math.isfinite(target):
        raise ValueError(f"target must be a finite number, got {target}; such as 0.9")
    name = metric or _shared(reports, direction)
    if name is None:
        if target is not None or direction is not None:
            asked = f"target={target}" if target is not None else f"goal={direction!r}"
            raise ValueError(f"{asked} needs a metric; add metric=")
        return None
    known = [one for report in reports if (one := find(report, name)) is not None]
    if not known:
        there = sorted({one.name for report in reports for one in report.metrics})
        raise ValueError(f"no run has a metric {name!r}; there are: {', '.join(there) or 'none'}")
    direction = direction or known[0].direction
    if direction is None:
        raise ValueError(
            f"whether {name!r} is better when it is lower or higher is not clear from its name; "
            "pass goal='lower' or goal='higher'"
        )
    if target is None:
        ended = [find(report, name) for report in reports if report.run.status == "finished"]
        bests = [best(one, direction) for one in filter(None, ended)]
        bests = bests or [best(one, direction) for one in known]
        target = max(bests) if direction == "lower" else min(bests)
    return Goal(metric=name, direction=direction, target=target)


def find(report: EnergyReport, name: str) -> Metric | None:
    """Return the metric called ``name``; ``None`` if the run has no values of it."""
    return next((one for one in report.metrics if one.name == name and one.value), None)


def best(metric: Metric, direction: Direction) -> float:
    """Return the best value that the metric reached."""
    return max(metric.value) if direction == "higher" else min(metric.value)


def reached(metric: Metric, judged: Goal) -> tuple[float | None, float] | None:
    """Return energy and time from the start of the run to the first value that meets the target.

    Returns:
        Energy in J (``None`` if not known) and time in s; ``None`` if no value meets the target.
    """
    for energy_j, t_s, value in zip(metric.energy_j, metric.t_s, metric.value, strict=True):
        if judged.sign * value >= judged.sign * judged.target:
            return energy_j, t_s
    return None


def _shared(reports: Sequence[EnergyReport], direction: Direction | None) -> str | None:
    """Return the name of a validation metric that all runs have; ``None`` if there is none.

    Only metrics whose better direction is ``direction`` are considered; if ``direction`` is
    ``None``, all metrics whose better direction is known.
    """
    directions = ("lower", "higher") if direction is None else (direction,)
    names = [
        [
            one.name
            for one in report.metrics
            if one.is_validation and one.value and one.direction in directions
        ]
        for report in reports
    ]
    shared = set.intersection(*map(set, names))
    # The first metric without "loss" in its name is selected; if there is none, the first metric.
    in_order = [name for name in names[0] if name in shared]
    return min(in_order, key=lambda name: "loss" in name.lower(), default=None)
