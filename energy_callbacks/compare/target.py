"""The user's metric in a comparison: which one, its best value, and the energy to reach it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from energy_callbacks.report.model.metrics import Direction, Metric
from energy_callbacks.report.model.schema import EnergyReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A metric, which way it is better, and the value that all are asked to reach."""

    metric: str
    direction: Direction
    target: float

    @property
    def sign(self) -> float:
        """Sign of the direction: 1 if larger is better, else -1."""
        return 1.0 if self.direction == "higher" else -1.0


def goal(
    reports: Sequence[EnergyReport],
    metric: str | None,
    direction: Direction | None,
    target: float | None,
) -> Goal | None:
    """The metric to judge by.

    Args:
        reports: of all groups.
        metric: its name; ``None`` takes the one of a validation that all runs have.
        direction: which way is better; ``None`` reads it off the name.
        target: value to reach; ``None`` takes the best that every run has reached that ended.

    Returns:
        ``None`` if no metric was asked for and none is there.

    Raises:
        ValueError: for a metric that no run has, or whose better direction is unknown.
    """
    named = metric or _shared(reports, direction)
    if named is None:
        if target is not None or direction is not None:
            asked = f"target={target}" if target is not None else f"goal={direction!r}"
            raise ValueError(f"{asked} needs a metric; add metric=")
        return None
    known = [one for report in reports if (one := find(report, named)) is not None]
    if not known:
        there = sorted({one.name for report in reports for one in report.metrics})
        raise ValueError(f"no run has a metric {named!r}; there are: {', '.join(there) or 'none'}")
    way = direction or known[0].direction
    if way is None:
        raise ValueError(
            f"whether {named!r} is better when it is lower or higher is not clear from its name; "
            "say goal='lower' or goal='higher'"
        )
    judged = Goal(metric=named, direction=way, target=0.0)
    ended = [one for one in reports if one.run.status == "finished"]
    whole = [one for report in ended if (one := find(report, named)) is not None]
    reached = [best(one, judged) for one in whole or known]
    worst = max(reached) if way == "lower" else min(reached)
    return Goal(metric=named, direction=way, target=worst if target is None else target)


def find(report: EnergyReport, name: str) -> Metric | None:
    """A run's metric of a name."""
    return next((one for one in report.metrics if one.name == name and one.value), None)


def best(metric: Metric, judged: Goal) -> float:
    """The best value that it reached."""
    return max(metric.value) if judged.direction == "higher" else min(metric.value)


def reached(metric: Metric, judged: Goal) -> tuple[float | None, float] | None:
    """Energy (J) and time (s) of the run when the target was first seen to be reached."""
    for energy_j, t_s, value in zip(metric.energy_j, metric.t_s, metric.value, strict=True):
        if judged.sign * value >= judged.sign * judged.target:
            return energy_j, t_s
    return None


def _shared(reports: Sequence[EnergyReport], direction: Direction | None) -> str | None:
    """A metric of a validation that all runs have and whose better way is known."""
    names = [{one.name for one in _judged(report.metrics, direction)} for report in reports]
    shared = set.intersection(*names) if names else set()
    order = [one.name for one in _judged(reports[0].metrics, direction) if one.name in shared]
    # What people are after is rather the accuracy than the loss.
    return min(order, key=lambda name: "loss" in name.lower(), default=None)


def _judged(metrics: Iterable[Metric], direction: Direction | None) -> list[Metric]:
    return [
        one
        for one in metrics
        if one.is_validation and one.value and one.direction in _ways(direction)
    ]


def _ways(direction: Direction | None) -> tuple[Direction, ...]:
    return ("lower", "higher") if direction is None else (direction,)
