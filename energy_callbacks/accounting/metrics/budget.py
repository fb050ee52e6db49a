"""Computes which share of its budget a run has used; a budget limits energy, emissions or both."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from energy_callbacks.core.config import EnergyConfig
from energy_callbacks.core.records import Energy
from energy_callbacks.core.units import grams, watt_hours

EmissionsKg = Callable[[Energy], tuple[float | None, float | None, float | None]]
"""A function from energy to kg CO2e: best value, lower end, upper end; ``None`` if unknown."""

# Maximum time for which energy is extrapolated from the last known power, s. After a longer time
# without readings, the sensors may have failed.
_REACH_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """The energy use of a run, as measured by one process.

    Attributes:
        energy_j: energy of GPUs and host in all attempts up to ``seen_s``, J.
        power_w: mean power of GPUs and host together, over the time span of the newest figures, W;
            0 if unknown.
        seen_s: monotonic time up to which the energy is known.
    """

    energy_j: float
    power_w: float
    seen_s: float

    def by(self, now_s: float) -> float:
        """Return the energy up to ``now_s``, J.

        Readings arrive about a second late. The energy after ``seen_s`` is therefore extrapolated,
        but for at most 10 s.
        """
        return self.energy_j + self.power_w * min(now_s - self.seen_s, _REACH_S)


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of a run's energy and emissions, for all its attempts and hosts together.

    Attributes:
        config: settings with the limits ``max_energy_wh`` and ``max_emissions_g``; a limit of
            ``None`` is not checked.
        emissions_kg: function from energy to kg CO2e.
    """

    config: EnergyConfig
    emissions_kg: EmissionsKg

    def share(self, used: Used, now_s: float) -> float:
        """Return the larger of the used shares of the two limits; 1 or more if a limit is reached.

        If the best value of the emissions is unknown, the upper end of the emissions is used
        instead. Unknown emissions count as 0.

        Args:
            used: energy use of the run, as measured by this process.
            now_s: monotonic time for which the share is computed.
        """
        energy_j = used.by(now_s)
        max_wh, max_g = self.config.max_energy_wh, self.config.max_emissions_g
        shares = [0.0] if max_wh is None else [watt_hours(energy_j) / max_wh]
        if max_g is not None:
            mass_kg, _, high_kg = self.emissions_kg(Energy(energy_j=energy_j, coverage=1.0))
            known_kg = high_kg if mass_kg is None else mass_kg
            shares.append(grams(known_kg or 0.0) / max_g)
        return max(shares)

    def __str__(self) -> str:
        limits = {name: getattr(self.config, name) for name in ("max_energy_wh", "max_emissions_g")}
        return " and ".join(f"{name}={v:g}" for name, v in limits.items() if v is not None)
