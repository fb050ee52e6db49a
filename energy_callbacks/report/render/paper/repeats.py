"""Computes means of repeated runs of the same training, with 95 % intervals.

The interval of n runs is that of Student's t distribution over the runs. The errors that repeats
share, of the sensors, of the edges of phases and of the carbon intensity, are combined with it in
quadrature. The interval of a single run is that of its report.

The half-width of Student's interval is a part of ``systematic_j``, and not of ``stderr_j``: large
differences between runs do not mean that a run was too short for its sensors (``is_resolved``).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import sub
from statistics import fmean, stdev

from energy_callbacks.core import formatting
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


def interval(
    values: Sequence[float], below: Sequence[float], above: Sequence[float]
) -> tuple[float, float, float]:
    """Return the mean of the runs, and both ends of its interval, at least 0.

    Args:
        values: value of each run.
        below: error of each run towards lower values; its mean is the error that the runs share.
        above: error of each run towards higher values.
    """
    mean, spread = fmean(values), half_width(values)
    low = max(mean - math.hypot(fmean(below), spread), 0.0)
    return mean, low, mean + math.hypot(fmean(above), spread)


def energy(reports: Reports, scope: str) -> Figure:
    """Return the mean energy of a scope; unknown if it is unknown for any run.

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
    return Figure(
        energy_j=fmean(values),
        edge_j=fmean(one.edge_j for one in figures),
        systematic_j=math.hypot(fmean(one.systematic_j for one in figures), half_width(values)),
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
    shared_j = [math.hypot(one.edge_j, one.systematic_j or 0.0) for one in ratios]
    mean_j, low_j, high_j = interval([one.value_j for one in ratios], shared_j, shared_j)
    edge_j = fmean(one.edge_j for one in ratios)
    return unit, Ratio(value_j=mean_j, low_j=low_j, high_j=high_j, stderr_j=0.0, edge_j=edge_j)


def emissions(reports: Reports) -> Emissions | None:
    """Return mean emissions; ``None`` if the emissions of a run are not known.

    The error of the carbon intensity is the same in all runs, so it does not become smaller. If a
    location is not set, both ends of the range are the means of those of the runs. The other fields
    are those of the first run.
    """
    found = [one.emissions for one in reports if one.emissions is not None]
    if len(found) < len(reports):
        return None
    lows, highs = [one.low_kg for one in found], [one.high_kg for one in found]
    values = [one.kg for one in found if one.kg is not None]
    if len(values) < len(found):
        return replace(found[0], kg=None, low_kg=fmean(lows), high_kg=fmean(highs))
    below, above = map(sub, values, lows), map(sub, highs, values)
    mean_kg, low_kg, high_kg = interval(values, list(below), list(above))
    return replace(found[0], kg=mean_kg, low_kg=low_kg, high_kg=high_kg)


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
