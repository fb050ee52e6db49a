"""Computes means of repeated runs of the same training, with 95 % intervals.

The interval of n runs is that of Student's t distribution over the runs. The errors that repeats
share, of the sensors and of the edges of phases, are combined with it in quadrature. The interval
of a single run is that of its report.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean, stdev

from energy_callbacks.core import formatting
from energy_callbacks.core.records import NORMAL_95
from energy_callbacks.core.stats import t_quantile
from energy_callbacks.report.model.amounts import Emissions, Figure, Ratio
from energy_callbacks.report.model.schema import EnergyReport
from energy_callbacks.report.render.headline import known_ratios

Reports = Sequence[EnergyReport]


def checked(reports: EnergyReport | Reports) -> Reports:
    """Return one or more reports as a sequence.

    Raises:
        ValueError: if there is no report, or if a run is given twice.
    """
    several = [reports] if isinstance(reports, EnergyReport) else list(reports)
    if not several:
        raise ValueError("no report is given; give at least one")
    runs = [(one.run.run_id, one.run.started_unix_s) for one in several]
    for run in runs:
        if runs.count(run) > 1:
            raise ValueError(f"run {run[0]} is given {runs.count(run)} times; give each run once")
    return several


def half_width(values: Sequence[float]) -> float:
    """Return the half-width of the 95 % interval of a mean (Student's t); 0 for one value.

    >>> round(half_width([1.0, 2.0, 3.0]), 3)  # 4.303 * 1 / sqrt(3)
    2.484
    """
    count = len(values)
    if count < 2:
        return 0.0
    return t_quantile(0.975, count - 1) * stdev(values) / math.sqrt(count)


def energy(reports: Reports, scope: str) -> Figure:
    """Return the mean energy of a scope; unknown if it is unknown for any run.

    ``stderr_j`` of the mean is chosen such that 1.96 times it is the half-width over the runs.

    Args:
        reports: reports of all runs.
        scope: ``gpu``, ``host`` or ``total``.
    """
    figures: list[Figure] = [getattr(one.energy, scope) for one in reports]
    values = [one.energy_j for one in figures if one.energy_j is not None]
    if len(figures) == 1:
        return figures[0]
    if len(values) < len(figures):
        return Figure(energy_j=None)
    is_alike = len({one.origin for one in figures}) == 1
    return Figure(
        energy_j=fmean(values),
        stderr_j=half_width(values) / NORMAL_95,
        edge_j=fmean(one.edge_j for one in figures),
        systematic_j=fmean(one.systematic_j for one in figures),
        method=", ".join(dict.fromkeys(one.method for one in figures)),
        coverage=min(one.coverage for one in figures),
        origin=figures[0].origin if is_alike else "mixed",
    )


def ratio(reports: Reports) -> tuple[str, Ratio] | None:
    """Return the mean energy per unit of work, with the finest unit that is known for all runs."""
    known = [dict(known_ratios(one.efficiency.total)) for one in reports]
    unit = next((unit for unit in known[0] if all(unit in one for one in known)), None)
    if unit is None:
        return None
    ratios = [one[unit] for one in known]
    if len(ratios) == 1:
        return unit, ratios[0]
    mean_j = fmean(one.value_j for one in ratios)
    systematic_j = fmean(one.systematic_j or 0.0 for one in ratios)
    edge_j, random_j = fmean(one.edge_j for one in ratios), half_width([r.value_j for r in ratios])
    error_j = math.hypot(random_j, edge_j, systematic_j)
    return unit, Ratio(
        value_j=mean_j,
        low_j=max(mean_j - error_j, 0.0),
        high_j=mean_j + error_j,
        stderr_j=random_j / NORMAL_95,
        edge_j=edge_j,
        systematic_j=systematic_j,
    )


def emissions(reports: Reports) -> Emissions | None:
    """Return mean emissions: the means of the values and of both ends of the intervals.

    The error of the carbon intensity is the same in all runs, so it does not become smaller. The
    other fields are those of the first run. ``None`` if the emissions of a run are not known.
    """
    found = [one.emissions for one in reports if one.emissions is not None]
    if len(found) < len(reports):
        return None
    values = [one.kg for one in found if one.kg is not None]
    return replace(
        found[0],
        kg=fmean(values) if len(values) == len(found) else None,
        low_kg=fmean(one.low_kg for one in found),
        high_kg=fmean(one.high_kg for one in found),
    )


def least(shares: Sequence[float]) -> str:
    """Return the smallest of several shares, in per cent.

    >>> least([0.5, 0.5]), least([0.5, 0.75])
    ('50.0 %', 'at least 50.0 %')
    """
    smallest = formatting.percent(min(shares))
    return smallest if smallest == formatting.percent(max(shares)) else f"at least {smallest}"


def texts(reports: Reports, say: Callable[[EnergyReport], str]) -> str:
    """Return the different texts about the runs, in the order of the runs."""
    return "; ".join(dict.fromkeys(say(one) for one in reports))
