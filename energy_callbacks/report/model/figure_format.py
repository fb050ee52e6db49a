"""Figures of a report as text, with their errors or upper bounds."""

import math
from typing import Literal

from energy_callbacks.core.formatting import (
    ENERGY_UNITS,
    JOULE_UNITS,
    MASS_UNITS,
    UNKNOWN,
    energy,
    in_unit,
    mass,
    percent,
    scaled,
    significant,
    with_error,
)
from energy_callbacks.report.model.models import (
    Cost,
    Emissions,
    Figure,
    Phase,
    RankUse,
    Ratio,
    WaitEnergy,
)


def figure(found: Figure) -> str:
    """An energy in watt-hours; of one that is not resolved, its upper bound.

    >>> figure(Figure(energy_j=44_280.0, stderr_j=720.0))
    '12.3 Wh'
    >>> figure(Figure(energy_j=360.0, stderr_j=200.0))
    '< 0.209 Wh'
    """
    if found.energy_j is None or found.is_resolved:
        return energy(found.energy_j)
    return f"< {energy(found.energy_j + found.error_j)}"


def error(found: Figure) -> str:
    """The half-width of the 95 % interval as a share, if the figure is resolved.

    >>> error(Figure(energy_j=44_280.0, systematic_j=720.0))
    '1.6 %'
    >>> error(Figure(energy_j=360.0, stderr_j=200.0)), error(Figure(energy_j=None))
    ('-', '-')
    """
    if found.energy_j is None or not found.is_resolved:
        return "-"
    return percent(found.error_j / abs(found.energy_j) if found.energy_j else 0.0)


def energy_with_error(figure: Figure) -> str:
    """An energy with the half-width of its 95 % interval.

    >>> energy_with_error(Figure(energy_j=44_280.0, systematic_j=720.0))
    '12.30 ± 0.20 Wh'
    """
    if figure.energy_j is None:
        return UNKNOWN
    if not figure.is_resolved:
        return f"< {energy(figure.energy_j + figure.error_j)}, too short to tell"
    factor, unit = in_unit(figure.energy_j, ENERGY_UNITS)
    value, error = with_error(figure.energy_j / factor, figure.error_j / factor)
    return f"{value} ± {error} {unit}"


def ratio(found: Ratio | None) -> str:
    """Energy for a unit of work.

    >>> ratio(Ratio(value_j=0.41, low_j=0.39, high_j=0.43))
    '0.41 J'
    """
    if found is None:
        return UNKNOWN
    if not found.is_resolved:
        return f"< {scaled(found.high_j, JOULE_UNITS, digits=2)}"
    return scaled(found.value_j, JOULE_UNITS, digits=_digits(found))


def ratio_interval(found: Ratio) -> str:
    """The 95 % interval in the unit of the value.

    >>> ratio_interval(Ratio(value_j=0.41, low_j=0.39, high_j=0.43))
    '0.39 to 0.43 J'
    """
    factor, unit = in_unit(found.value_j, JOULE_UNITS)
    digits = max(_digits(found), 2)
    low, high = (significant(bound / factor, digits) for bound in (found.low_j, found.high_j))
    return f"{low} to {high} {unit}"


def wait_energy(found: WaitEnergy | None) -> str:
    """Energy of waiting for data with its 95 % interval, or what it lies below.

    >>> wait_energy(WaitEnergy(value_j=3600, low_j=3420, high_j=3780, stderr_j=0, systematic_j=180))
    '1.00 Wh (0.950 to 1.05 Wh)'
    >>> wait_energy(WaitEnergy(value_j=360, low_j=0, high_j=720, stderr_j=0, systematic_j=360))
    '< 0.200 Wh, waits too short to tell'
    """
    if found is None:
        return UNKNOWN
    if not found.is_resolved:
        return f"< {energy(found.high_j)}, waits too short to tell"
    factor, unit = in_unit(found.value_j, ENERGY_UNITS)
    low, high = (significant(bound_j / factor) for bound_j in (found.low_j, found.high_j))
    return f"{energy(found.value_j)} ({low} to {high} {unit})"


def _digits(found: Ratio) -> int:
    """Digits of a ratio that its error leaves, two to four."""
    error_j = found.high_j - found.value_j
    if error_j <= 0.0 or found.value_j <= 0.0:
        return 3
    return min(max(1 + round(math.log10(found.value_j / error_j)), 2), 4)


def cards(rank: RankUse) -> str:
    """The cards of a rank, and whether they are its alone."""
    names = ", ".join(rank.gpus)
    return f"{names} (shared)" if rank.shares_gpus else names or "-"


def emissions(found: Emissions | None) -> str:
    """The best value, or the interval if the place is not known."""
    if found is None:
        return UNKNOWN
    if found.kg is not None:
        return f"{mass(found.kg)}CO2e"
    return f"{emissions_interval(found)}CO2e"


def emissions_interval(found: Emissions) -> str:
    """Both ends in the unit of the upper one."""
    factor, unit = in_unit(found.high_kg, MASS_UNITS)
    return f"{significant(found.low_kg / factor)} to {significant(found.high_kg / factor)} {unit}"


def money(cost: Cost | None) -> str:
    """An amount without a currency, which is not known."""
    return UNKNOWN if cost is None else significant(cost.amount)


def share(phase: Phase) -> str:
    """What share of the total energy a phase took, if it is resolved."""
    return percent(phase.share) if phase.share is not None and phase.total.is_resolved else "-"


Badge = Literal["measured", "estimated", "mixed", "not known"]


def badge(figure: Figure) -> Badge:
    """One word for who spoke."""
    return figure.origin or "not known"
