"""Creates searches for the objective of an optimizer, which may change with a schedule of caps."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from energy_callbacks.powercap.search import objectives
from energy_callbacks.powercap.search.schedule import CapSchedule
from energy_callbacks.powercap.search.search import PowerSearch
from energy_callbacks.powercap.settings import KnobRange

if TYPE_CHECKING:
    from energy_callbacks.powercap.options import OptimizerOptions
    from energy_callbacks.sensing.clock import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Cards:
    """The cards of a run, on all hosts.

    Attributes:
        settings: the settings that all of them accept.
        found: the setting found; the highest one if clocks were not locked.
        count: number of cards.
        highest_w: sum of the highest power limits, W; 0 if the objective does not need it.
    """

    settings: KnobRange
    found: float
    count: int
    highest_w: float


class ObjectiveOverTime:
    """The objective now.

    Args:
        optimizer: the settings.
        clock: tells the time for the schedule.
    """

    def __init__(self, optimizer: "OptimizerOptions", clock: "Clock") -> None:
        self._optimizer = optimizer
        self._clock = clock
        self._schedule = None
        if optimizer.schedule is not None:
            self._schedule = CapSchedule.read(Path(optimizer.schedule))
        self._cap_w = self._cap_now_w()

    def _cap_now_w(self) -> float | None:
        if self._schedule is not None:
            return self._schedule.at(self._clock.unix_s())
        return self._optimizer.cap_w

    def has_changed(self) -> bool:
        """Return whether the cap has changed since the last search was created."""
        return self._schedule is not None and self._cap_now_w() != self._cap_w

    def search(self, cards: Cards) -> PowerSearch:
        """Create a search for the objective of now."""
        self._cap_w = self._cap_now_w()
        return PowerSearch(
            self._objective(cards), cards.settings, found=cards.found, cards=cards.count
        )

    def _objective(self, cards: Cards) -> objectives.Objective:
        optimizer = self._optimizer
        if self._cap_w is not None:
            return objectives.PowerCap(self._cap_w)
        if self._schedule is not None:  # there is no cap now
            return objectives.MaxSlowdown(0.0)
        if optimizer.eta is not None:
            return objectives.ZeusCost(optimizer.eta, max_power_w=cards.highest_w)
        if optimizer.max_slowdown is not None:
            return objectives.MaxSlowdown(optimizer.max_slowdown)
        return objectives.MinEnergy()
