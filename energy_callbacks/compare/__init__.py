"""Compares groups of runs: ratios with confidence intervals, verdicts, and caveats.

::

    comparison = compare({"adam": ["runs/a1", "runs/a2"], "sgd": ["runs/b1", "runs/b2"]})
    print(comparison)
    comparison.save("comparison")            # comparison.html, .json, .md and pictures
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from energy_callbacks.compare import page, text  # noqa: F401 - importing registers their functions
from energy_callbacks.compare.build import MARGIN, Pairing, Repeat, build
from energy_callbacks.compare.model import Comparison
from energy_callbacks.compare.paper import bibtex, latex
from energy_callbacks.compare.target import goal as goal_of
from energy_callbacks.report import load
from energy_callbacks.report.model.metrics import Direction
from energy_callbacks.report.model.schema import EnergyReport

__all__ = ["Comparison", "bibtex", "compare", "latex"]

Run = str | Path | EnergyReport


def compare(
    groups: Mapping[str, Run | Sequence[Run]],
    *,
    metric: str | None = None,
    goal: Direction | None = None,
    target: float | None = None,
    paired: Pairing = "auto",
    margin: float = MARGIN,
) -> Comparison:
    """Compare each group of runs with the first group.

    Args:
        groups: runs by name of the group. The runs of a group repeat the same training. A run is
            given as a run folder, a saved report, a log of another program, or an
            ``EnergyReport``.
        metric: name of the metric by which model quality is compared; ``None`` selects a
            validation metric that all runs have.
        goal: whether ``"lower"`` or ``"higher"`` values of the metric are better; ``None`` infers
            this from its name.
        target: value of the metric. The energies and times that the runs need until they first
            reach the target are compared. ``None`` selects the best value that all finished runs
            reached; if no run has finished, the best value that all runs reached.
        paired: whether the n-th runs of two groups form a pair, in the order given. ``"auto"``
            pairs successive runs by start time if the groups ran alternately, as in ABAB or ABBA.
        margin: share of the first group's mean metric by which a group may be worse and still
            count as equally good; 0.01 is 1 %.

    Raises:
        TypeError: if ``groups`` is no dictionary.
        ValueError: for fewer than two groups, an empty group, a negative margin, a run that is
            given twice, ``paired=True`` with groups of different sizes, a metric that no run has
            or whose better direction is not known, or a goal or target without a metric.
        JournalError: if a run cannot be read.
    """
    if not isinstance(groups, Mapping):
        raise TypeError(
            f"compare takes a dictionary, got {groups!r}; "
            "write compare({'old': runs, 'new': runs})"
        )
    if len(groups) < 2:
        raise ValueError(f"a comparison needs at least two groups of runs, got {len(groups)}")
    if margin < 0.0:
        raise ValueError(f"margin={margin} must not be negative; 0.01 is 1 %")
    repeats = {name: _repeats(name, runs) for name, runs in groups.items()}
    _refuse_repeated(repeats)
    counts = {name: len(runs) for name, runs in repeats.items()}
    if paired is True and len(set(counts.values())) > 1:
        listed = ", ".join(f"{name}: {count}" for name, count in counts.items())
        raise ValueError(f"paired=True needs the same number of runs in each group, got {listed}")
    reports = [repeat.report for runs in repeats.values() for repeat in runs]
    judged = goal_of(reports, metric, goal, target)
    return build(repeats, judged, paired=paired, margin=margin)


def _refuse_repeated(groups: Mapping[str, Sequence[Repeat]]) -> None:
    """Raise ``ValueError`` if a run is given twice, because its copies are not independent."""
    seen: dict[tuple[str, float], str] = {}
    for name, repeats in groups.items():
        for source, report in repeats:
            run = report.run.run_id, report.run.started_unix_s
            if run in seen:
                raise ValueError(
                    f"{source} of group {name!r} is the same run as {seen[run]}; give each run once"
                )
            seen[run] = f"{source} of group {name!r}"


def _repeats(name: str, runs: Run | Sequence[Run]) -> list[Repeat]:
    several = [runs] if isinstance(runs, str | Path | EnergyReport) else list(runs)
    if not several:
        raise ValueError(f"group {name!r} has no run; give it at least one")
    return [_repeat(run) for run in several]


def _repeat(run: Run) -> Repeat:
    if isinstance(run, EnergyReport):
        return Repeat(run.run.name or f"run {run.run.run_id}", run)
    return Repeat(str(run), load(run))
