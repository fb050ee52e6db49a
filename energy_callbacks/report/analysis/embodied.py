"""The share of the embodied emissions of hardware that belongs to a training."""

from dataclasses import dataclass
from typing import Final

from energy_callbacks.core.units import hours

_HOURS_PER_YEAR: Final = 365.25 * 24.0
METHOD: Final = (
    "embodied emissions of the hardware, stated by the user, times the time of the training "
    "divided by the lifetime of the hardware (ISO/IEC 21031:2024, time share of M)"
)
NOT_INCLUDED: Final = (
    "Embodied emissions, which are those of making, transporting and disposing of the hardware, "
    "are not included"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Embodied:
    """Embodied emissions of all hardware that a training uses.

    Attributes:
        kg: emissions of production, transport and disposal, in kg of CO2 equivalent, such as in the
            manufacturer's product carbon footprint (ISO 14067).
        lifetime_years: time for which the hardware is used.

    Raises:
        ValueError: if ``kg`` is negative or ``lifetime_years`` is not positive.
    """

    kg: float
    lifetime_years: float

    def __post_init__(self) -> None:
        """Check both numbers."""
        if not self.kg >= 0.0:
            raise ValueError(f"embodied emissions must not be negative, got {self.kg} kg")
        if not self.lifetime_years > 0.0:
            raise ValueError(
                f"the lifetime must be positive, got {self.lifetime_years} years; give the years "
                "for which the hardware is used"
            )

    def share_kg(self, duration_s: float) -> float:
        """Return the share of a training, in kg of CO2 equivalent.

        >>> Embodied(kg=3506.4, lifetime_years=4).share_kg(36000.0)
        1.0
        """
        return self.kg * hours(duration_s) / (self.lifetime_years * _HOURS_PER_YEAR)
