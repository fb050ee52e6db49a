"""Adds the energies of several devices or time spans, and combines their errors."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from energy_callbacks.core.records import Energy

UNKNOWN = Energy(energy_j=None)


def total(energies: Iterable[Energy], durations_s: Sequence[float] | None = None) -> Energy:
    """Return the sum of energies; the sum is unknown only if every part is unknown.

    * energies are added; a part with ``energy_j=None`` adds nothing and lowers the coverage;
    * random errors are independent: ``stderr = sqrt(sum(stderr_i ** 2))``;
    * errors from edges may have the same sign (the same change of power at each edge, on all
      devices), so their bounds are added. Time spans that share an edge are added by
      ``total_of_neighbours`` instead, because the errors at a shared edge cancel;
    * systematic errors may have the same sign (same gain, same model), so their bounds are added;
    * coverage is the mean over the parts, weighted by their durations;
    * the methods of the known parts are joined with ``", "``, each method once, in order.

    Args:
        energies: the parts.
        durations_s: length of each part's time span in s, in the same order; ``None`` if all parts
            have the same time span.

    Returns:
        The sum; ``Energy(energy_j=None)`` if there are no parts.

    Raises:
        ValueError: if ``durations_s`` does not contain one duration for each part.

    >>> pair = [Energy(energy_j=30.0, stderr_j=3.0, method="counter", coverage=1.0),
    ...         Energy(energy_j=40.0, stderr_j=4.0, method="model", coverage=0.5)]
    >>> both = total(pair)
    >>> both.energy_j, both.stderr_j, both.method, both.coverage
    (70.0, 5.0, 'counter, model', 0.75)
    """
    parts = list(energies)
    known = [part for part in parts if part.energy_j is not None]
    if not known:
        return UNKNOWN
    return Energy(
        energy_j=math.fsum(part.energy_j for part in known if part.energy_j is not None),
        stderr_j=math.hypot(*(part.stderr_j for part in known)),
        edge_j=math.fsum(part.edge_j for part in known),
        systematic_j=math.fsum(part.systematic_j for part in known),
        method=_joined(part.method for part in known),
        coverage=_mean([part.coverage for part in parts], _weights(len(parts), durations_s)),
    )


def total_of_neighbours(energies: Sequence[Energy], durations_s: Sequence[float]) -> Energy:
    """Return the sum of energies of one device in time spans that follow each other without gaps.

    What the error at a shared edge adds to one span is missing in the other. The error from edges
    is therefore that of the start of the first span and of the end of the last span. It is at most
    the root of the sum of the squares of ``edge_j`` of these two spans. Everything else is as in
    ``total``.

    Args:
        energies: energies of the spans in the order of time.
        durations_s: length of each span in s, in the same order.

    >>> energies = [Energy(energy_j=5.0, edge_j=edge_j) for edge_j in (3.0, 9.0, 4.0)]
    >>> total_of_neighbours(energies, [1.0, 1.0, 1.0]).edge_j
    5.0
    """
    found = total(energies, durations_s)
    ends = [part for part in energies if part.energy_j is not None]
    if len(ends) < 2:
        return found
    return replace(found, edge_j=math.hypot(ends[0].edge_j, ends[-1].edge_j))


def interval_j(energy: Energy) -> tuple[float, float, float] | None:
    """Extrapolate an energy to its whole time span, and return it with its 95 % interval, J.

    The mean power in the time without readings is assumed to be the mean power in the time with
    readings, with an error of 100 %.

    Returns:
        Energy, lower end and upper end; ``None`` if less than half of the time span has readings.

    >>> interval_j(Energy(energy_j=90.0, systematic_j=9.0, method="power", coverage=0.9))
    (100.0, 80.0, 120.0)
    """
    if energy.energy_j is None or energy.coverage < 0.5:
        return None
    whole_j = energy.energy_j / energy.coverage
    error_j = energy.error_j / energy.coverage + abs(whole_j - energy.energy_j)
    return whole_j, max(whole_j - error_j, 0.0), whole_j + error_j


def whole_window(energy: Energy) -> Energy:
    """Extrapolate an energy to its whole time span, as ``interval_j`` does.

    The error of the extrapolation is systematic. The result is unknown if less than half of the
    time span has readings.

    >>> whole = whole_window(Energy(energy_j=90.0, systematic_j=9.0, method="power", coverage=0.9))
    >>> whole.energy_j, whole.systematic_j, whole.coverage
    (100.0, 20.0, 0.9)
    """
    found = interval_j(energy)
    if found is None or energy.energy_j is None:
        return UNKNOWN
    whole_j, _, _ = found
    return replace(
        energy,
        energy_j=whole_j,
        stderr_j=energy.stderr_j / energy.coverage,
        edge_j=energy.edge_j / energy.coverage,
        systematic_j=energy.systematic_j / energy.coverage + abs(whole_j - energy.energy_j),
    )


def _joined(methods: Iterable[str]) -> str:
    """Join the names of methods, each name once; a method may contain several names.

    ``none`` is left out if there are other names: it is the method of a device that was not in use.
    """
    names = dict.fromkeys(name for method in methods for name in method.split(", "))
    return ", ".join(name for name in names if name != "none") or "none"


def _weights(count: int, durations_s: Sequence[float] | None) -> Sequence[float]:
    if durations_s is None:
        return [1.0] * count
    if len(durations_s) != count:
        raise ValueError(
            f"durations_s must give one duration for each of the {count} energies, got "
            f"{len(durations_s)}; leave it out if all have the same window"
        )
    return durations_s if math.fsum(durations_s) > 0.0 else [1.0] * count


def _mean(values: Sequence[float], weights: Sequence[float]) -> float:
    weighted = math.fsum(v * w for v, w in zip(values, weights, strict=True))
    return weighted / math.fsum(weights)
