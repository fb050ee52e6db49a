"""Formats the amounts of a report as text. Energies that are not resolved become upper bounds."""

import math
from collections.abc import Iterable
from typing import Final

from energy_callbacks.core import formatting
from energy_callbacks.core.formatting import ENERGY_UNITS, JOULE_UNITS, MASS_UNITS, UNKNOWN
from energy_callbacks.report.model import amounts, runs

ORDER_ONLY: Final = "order of magnitude only"
# An energy whose error is at least this share of it is known to an order of magnitude only: with
# two digits, its interval begins at zero.
_ORDER_ONLY_SHARE: Final = 0.95


def has_machine(devices: Iterable[runs.DeviceUse]) -> bool:
    """Return whether a sensor of a whole machine contributes to the total."""
    return any(one.scope == "machine" and one.energy.energy_j is not None for one in devices)


def figure(figure: amounts.Figure) -> str:
    """Return an energy in kWh, Wh or mWh, or its upper bound if the energy is not resolved.

    >>> figure(amounts.Figure(energy_j=44_280.0, stderr_j=720.0))
    '12.3 Wh'
    >>> figure(amounts.Figure(energy_j=360.0, stderr_j=200.0))
    '< 0.209 Wh'
    """
    if figure.energy_j is None or figure.is_resolved:
        return formatting.energy(figure.energy_j)
    return f"< {formatting.energy(figure.energy_j + figure.error_j)}"


def error(figure: amounts.Figure) -> str:
    """Return the half-width of the 95 % interval in percent of the energy; ``-`` if not resolved.

    >>> error(amounts.Figure(energy_j=44_280.0, systematic_j=720.0))
    '1.6 %'
    >>> error(amounts.Figure(energy_j=360.0, systematic_j=360.0))
    'order of magnitude only'
    >>> error(amounts.Figure(energy_j=360.0, stderr_j=200.0)), error(amounts.Figure(energy_j=None))
    ('-', '-')
    """
    if figure.energy_j is None or not figure.is_resolved:
        return "-"
    if is_order_only(figure):
        return ORDER_ONLY
    share = figure.error_j / abs(figure.energy_j) if figure.energy_j else 0.0
    return formatting.percent(share)


def energy_with_error(figure: amounts.Figure) -> str:
    """Return an energy with the half-width of its 95 % interval; if not resolved, an upper bound.

    >>> energy_with_error(amounts.Figure(energy_j=44_280.0, systematic_j=720.0))
    '12.30 ± 0.20 Wh'
    >>> energy_with_error(amounts.Figure(energy_j=44_280.0, systematic_j=44_280.0))
    'about 12 Wh'
    """
    if figure.energy_j is None:
        return UNKNOWN
    if not figure.is_resolved:
        return f"< {formatting.energy(figure.energy_j + figure.error_j)}, too short to measure"
    if is_order_only(figure):
        return f"about {formatting.scaled(figure.energy_j, ENERGY_UNITS, digits=1)}"
    factor, unit = formatting.in_unit(figure.energy_j, ENERGY_UNITS)
    value, error = formatting.with_error(figure.energy_j / factor, figure.error_j / factor)
    return f"{value} ± {error} {unit}"


def is_order_only(figure: amounts.Figure) -> bool:
    """Return whether an energy is resolved but known to an order of magnitude only.

    >>> is_order_only(amounts.Figure(energy_j=360.0, systematic_j=180.0))
    False
    """
    if not figure.energy_j or not figure.is_resolved:
        return False
    return figure.error_j >= _ORDER_ONLY_SHARE * figure.energy_j


def ratio(ratio: amounts.Ratio | None) -> str:
    """Return an energy per unit of work, or its upper bound if the energy is not resolved.

    >>> ratio(amounts.Ratio(value_j=0.41, low_j=0.39, high_j=0.43))
    '0.41 J'
    """
    if ratio is None:
        return UNKNOWN
    if not ratio.is_resolved:
        return f"< {formatting.scaled(ratio.high_j, JOULE_UNITS, digits=2)}"
    return formatting.scaled(ratio.value_j, JOULE_UNITS, digits=_digits(ratio))


def ratio_interval(ratio: amounts.Ratio) -> str:
    """Return the 95 % interval of an energy per unit of work, in the unit that suits the value.

    >>> ratio_interval(amounts.Ratio(value_j=0.41, low_j=0.39, high_j=0.43))
    '0.39 to 0.43 J'
    """
    unit = formatting.in_unit(ratio.value_j, JOULE_UNITS)
    return _interval(ratio.low_j, ratio.high_j, unit, digits=_digits(ratio))


def wait_energy(wait: amounts.WaitEnergy | None) -> str:
    """Return the energy of waits with its 95 % interval; if not resolved, an upper bound.

    The energy of waits is resolved if the upper end of the interval is at most 1.5 times the
    energy. Unlike for other energies, systematic errors count, too.

    >>> wait_energy(
    ...     amounts.WaitEnergy(
    ...         value_j=3600, low_j=3420, high_j=3780, stderr_j=0, systematic_j=180
    ...     )
    ... )
    '1.00 Wh (0.950 to 1.05 Wh)'
    >>> wait_energy(
    ...     amounts.WaitEnergy(value_j=360, low_j=0, high_j=720, stderr_j=0, systematic_j=360)
    ... )
    '< 0.200 Wh, waiting times too short to measure'
    """
    if wait is None:
        return UNKNOWN
    if not wait.is_resolved:
        return f"< {formatting.energy(wait.high_j)}, waiting times too short to measure"
    unit = formatting.in_unit(wait.value_j, ENERGY_UNITS)
    return f"{formatting.energy(wait.value_j)} ({_interval(wait.low_j, wait.high_j, unit)})"


def _interval(low: float, high: float, unit: tuple[float, str], digits: int = 3) -> str:
    """Return both ends of an interval as text.

    Args:
        low: lower end.
        high: upper end.
        unit: size and name of the unit in the text; both ends are divided by the size.
        digits: number of significant digits.
    """
    size, name = unit
    ends = (formatting.significant(end / size, digits) for end in (low, high))
    return f"{' to '.join(ends)} {name}"


def _digits(ratio: amounts.Ratio) -> int:
    """Return the number of significant digits, 2 to 4, that the error of a ratio justifies."""
    error_j = ratio.high_j - ratio.value_j
    if error_j <= 0.0 or ratio.value_j <= 0.0:
        return 3
    return min(max(1 + round(math.log10(ratio.value_j / error_j)), 2), 4)


def cards(rank: runs.RankUse) -> str:
    """Return the GPUs of a rank, and whether the rank shares them with other ranks."""
    names = ", ".join(rank.gpus)
    return f"{names} (shared)" if rank.shares_gpus else names or "-"


def emissions(emissions: amounts.Emissions | None) -> str:
    """Return the best estimate of the emissions; if it is not known, their interval."""
    if emissions is None:
        return UNKNOWN
    if emissions.kg is not None:
        return f"{formatting.mass(emissions.kg)}CO2e"
    return f"{emissions_interval(emissions)}CO2e"


def carbon_intensity(emissions: amounts.Emissions) -> str:
    """Return the carbon intensity in g/kWh; empty if it is not known."""
    kg_per_kwh = emissions.kg_per_kwh
    return "" if kg_per_kwh is None else f"{formatting.significant(1e3 * kg_per_kwh)} g/kWh"


def location(emissions: amounts.Emissions) -> str:
    """Return the location; if it is not known, the carbon intensity, if that is known."""
    return emissions.place or carbon_intensity(emissions) or "location not set"


def emissions_interval(emissions: amounts.Emissions) -> str:
    """Return the interval of the emissions, in the unit that suits the upper end."""
    unit = formatting.in_unit(emissions.high_kg, MASS_UNITS)
    return _interval(emissions.low_kg, emissions.high_kg, unit)


def money(cost: amounts.Cost | None) -> str:
    """Return a cost with its currency, if that is known."""
    return UNKNOWN if cost is None else _with_currency(formatting.significant(cost.amount), cost)


def price(cost: amounts.Cost) -> str:
    """Return the price of a kilowatt-hour."""
    return f"{_with_currency(f'{cost.price_per_kwh:g}', cost)} per kWh"


def _with_currency(amount: str, cost: amounts.Cost) -> str:
    return f"{amount} {cost.currency}" if cost.currency else amount


def share(phase: runs.Phase) -> str:
    """Return the share of a phase in the total energy; ``-`` if not known or not resolved."""
    is_resolved = phase.share is not None and phase.total.is_resolved
    return formatting.percent(phase.share) if is_resolved else "-"
