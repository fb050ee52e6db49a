"""The line that is printed at the end of a training, before its report is made."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from energy_callbacks.core import formatting
from energy_callbacks.core.config import EnergyConfig
from energy_callbacks.core.formatting import MASS_UNITS
from energy_callbacks.core.records import Device
from energy_callbacks.core.units import JOULES_PER_WATT_HOUR, kilowatt_hours

# Figures per unit of work, in the order of preference: the first known one is shown.
_RATIOS = (
    ("efficiency/gpu_j_per_token", "token"),
    ("efficiency/gpu_j_per_sample", "sample"),
    ("efficiency/gpu_j_per_step", "step"),
    ("efficiency/total_j_per_sample", "sample"),
)


def line(
    figures: Mapping[str, float], devices: Iterable[Device], path: Path, config: EnergyConfig
) -> str:
    """Return a summary of a training in one line.

    For example:
    ``12.3 Wh (gpu 10.1 Wh measured, host 2.20 Wh estimated) · 0.410 J/sample · report: PATH``

    Args:
        figures: figures of the whole training by tag.
        devices: the measured devices.
        path: path at which the report will be.
        config: settings of the training, for the cost; it is left out without a currency.
    """
    pieces = [_energy(figures, tuple(devices)), _ratio(figures)]
    pieces += [_emissions(figures), _cost(figures, config), f"report: {path}"]
    return " · ".join(formatting.one_line(piece) for piece in pieces if piece)


def _energy(figures: Mapping[str, float], devices: tuple[Device, ...]) -> str:
    parts = []
    for scope in ("gpu", "host"):
        if (energy := _wh(figures, scope)) is not None:
            origins = {device.origin for device in devices if device.scope == scope}
            parts.append(f"{scope} {energy} {'mixed' if len(origins) > 1 else ''.join(origins)}")
    if any(device.scope == "machine" for device in devices):
        parts.insert(0, "whole machine")
    total = _wh(figures, "total")
    return "energy not known" if total is None else f"{total} ({', '.join(parts)})"


def _wh(figures: Mapping[str, float], scope: str) -> str | None:
    energy_wh = figures.get(f"energy/{scope}_wh")
    return None if energy_wh is None else formatting.energy(energy_wh * JOULES_PER_WATT_HOUR)


def _ratio(figures: Mapping[str, float]) -> str:
    known = ((figures[tag], unit) for tag, unit in _RATIOS if tag in figures)
    return next((f"{formatting.joules(energy_j)}/{unit}" for energy_j, unit in known), "")


def _emissions(figures: Mapping[str, float]) -> str:
    if (mass_g := figures.get("emissions/total_g")) is not None:
        return f"{formatting.mass(mass_g / 1e3)}CO2e"
    if "emissions/total_g_hi" not in figures:
        return ""
    size_kg, unit = formatting.in_unit(figures["emissions/total_g_hi"] / 1e3, MASS_UNITS)
    low, high = (figures[f"emissions/total_g_{end}"] / 1e3 / size_kg for end in ("lo", "hi"))
    interval = f"{formatting.significant(low)} to {formatting.significant(high)}"
    return f"{interval} {unit}CO2e (location not set)"


def _cost(figures: Mapping[str, float], config: EnergyConfig) -> str:
    energy_wh, price_per_kwh = figures.get("energy/total_wh"), config.price_per_kwh
    if energy_wh is None or price_per_kwh is None or config.currency is None:
        return ""
    energy_kwh = kilowatt_hours(energy_wh * JOULES_PER_WATT_HOUR)
    amount = formatting.significant(energy_kwh * config.pue * price_per_kwh)
    return f"{amount} {config.currency}"
