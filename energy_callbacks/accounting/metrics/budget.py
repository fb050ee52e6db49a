"""Budgets: the share of a limit that a run has used."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from energy_callbacks.core.records import Energy
from energy_callbacks.core.units import grams, watt_hours

EmissionsKg = Callable[[Energy], tuple[float | None, float | None, float | None]]
"""From energy to kg CO2e: best value, lower and upper end; ``None`` if not known."""

# What was not seen yet is taken to go on as before, unless the sensors have fallen silent.
_REACH_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """The usage of a run as one process has measured it.

    Attributes:
        energy_j: over all attempts, up to ``seen_s``.
        power_w: mean power just before.
        seen_s: by ``time.monotonic()``.
    """

    energy_j: float
    power_w: float
    seen_s: float

    def by(self, now_s: float) -> float:
        """Joules up to now: sensors lag behind by about a second."""
        return self.energy_j + self.power_w * min(now_s - self.seen_s, _REACH_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The budget of a run, over all its attempts and hosts.

    Attributes:
        max_energy_wh: of GPUs and host; ``None`` for no limit.
        max_emissions_g: of their energy, gCO2e; ``None`` for no limit.
        emissions_kg: from energy to kg CO2e with its interval.
    """

    max_energy_wh: float | None
    max_emissions_g: float | None
    emissions_kg: EmissionsKg | None

    def share(self, used: Used, now_s: float) -> float:
        """The used share of the tighter limit; 1 or more if it is used up.

        If the place is not known, emissions are taken from the high end of their interval.
        """
        energy_j = used.by(now_s)
        shares = [0.0]
        if self.max_energy_wh is not None:
            shares.append(watt_hours(energy_j) / self.max_energy_wh)
        if self.max_emissions_g is not None and self.emissions_kg is not None:
            mass_kg, _, high_kg = self.emissions_kg(Energy(energy_j=energy_j, coverage=1.0))
            known_kg = high_kg if mass_kg is None else mass_kg
            shares.append(grams(known_kg or 0.0) / self.max_emissions_g)
        return max(shares)

    def __str__(self) -> str:
        limits = []
        if self.max_energy_wh is not None:
            limits.append(f"max_energy_wh={self.max_energy_wh:g}")
        if self.max_emissions_g is not None:
            limits.append(f"max_emissions_g={self.max_emissions_g:g}")
        return " and ".join(limits)
