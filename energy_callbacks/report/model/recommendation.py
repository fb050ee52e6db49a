"""The record of a recommendation: one thing to change, with its evidence."""

from dataclasses import dataclass
from typing import Final, Literal

from energy_callbacks.core import formatting

Code = Literal[
    "data_wait",
    "idle",
    "batch_size",
    "throttling",
    "straggler",
    "late_stop",
    "input_bound",
    "launch_bound",
    "memory_bound",
    "copies",
]

# Smaller shares of the time or of the energy do not justify a change.
MATTERS: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """One thing to change.

    Attributes:
        message: what was seen, with figures.
        fix: what to do about it.
        saves_j: at most, of this run; ``None`` if unknown.
    """

    code: Code
    message: str
    fix: str
    saves_j: float | None

    @property
    def saving(self) -> str:
        """The saving in words; empty if unknown."""
        return "" if self.saves_j is None else f"saves up to {formatting.energy(self.saves_j)}"
