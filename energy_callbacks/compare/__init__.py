"""Groups of runs compared: ratios with intervals, verdicts, and whether they are to be trusted.

::

    comparison = compare({"adam": ["runs/a1", "runs/a2"], "sgd": ["runs/b1", "runs/b2"]})
    print(comparison)
    comparison.save("comparison")            # comparison.html, .json, .md and pictures
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from energy_callbacks.compare import saving, text  # noqa: F401 - they register themselves
from energy_callbacks.compare.build import MARGIN, Pairing, Repeat, build
from energy_callbacks.compare.model import Comparison
from energy_callbacks.report import load
from energy_callbacks.report.model.metrics import Direction
from energy_callbacks.report.model.schema import EnergyReport

__all__ = ["Comparison", "compare"]

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
    """Compare groups of runs with the first of them.

    Args:
        groups: a name and its runs, repeats of the same: run folders, saved reports, logs of other
            tools, or reports. The first group is what the others are compared with.
        metric: the user's metric by which quality is judged; ``None`` takes one of a validation
            that all runs have.
        goal: which way it is better, ``"lower"`` or ``"higher"``; ``None`` reads it off its name.
        target: value of the metric that energy and time are asked for; ``None`` takes the best
            that every run has reached.
        paired: whether the runs of two groups belong together one by one, in the order given;
            ``"auto"``: if they were made in turn.
        margin: share of the metric by which a group may be worse and still be as good.

    Raises:
        ValueError: for less than two groups, an empty one, a run that is there twice, pairs of
            unlike number, or a metric that no run has.
        JournalError: for a run that cannot be read.
    """
    if len(groups) < 2:
        raise ValueError(f"a comparison needs two groups of runs at least, got {len(groups)}")
    if margin < 0.0:
        raise ValueError(f"margin={margin} must not be negative; 0.01 is one per cent")
    read = {name: _repeats(name, runs) for name, runs in groups.items()}
    _refuse_repeated(read)
    counts = {len(repeats) for repeats in read.values()}
    if paired is True and len(counts) > 1:
        told = ", ".join(f"{name}: {len(repeats)}" for name, repeats in read.items())
        raise ValueError(f"paired=True needs as many runs in each group, got {told}")
    return build(read, metric=metric, goal=goal, to_reach=target, paired=paired, margin=margin)


def _refuse_repeated(groups: Mapping[str, Sequence[Repeat]]) -> None:
    """A run that counts twice would be compared with itself."""
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
        raise ValueError(f"group {name!r} has no run; give it one at least")
    return [Repeat(_source(one), _read(one)) for one in several]


def _read(run: Run) -> EnergyReport:
    return run if isinstance(run, EnergyReport) else load(run)


def _source(run: Run) -> str:
    if isinstance(run, EnergyReport):
        return run.run.name or f"run {run.run.run_id}"
    return str(run)
