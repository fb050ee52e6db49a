"""Runs a controller on a plant, window by window, while the cap follows a schedule."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from energy_callbacks.inference.control.protocols import Controller, Plant, Window

WINDOW_S: Final = 1.0
_ROUNDING_S: Final = 1e-6


@dataclass(frozen=True, slots=True)
class CapSchedule:
    """A cap that changes at given times.

    Attributes:
        steps: pairs of a time from the start in s and the cap from then on in W.

    Raises:
        ValueError: if the first time is not 0, if times do not ascend, or if a cap is not positive.

    >>> down = CapSchedule(((0.0, 300.0), (60.0, 240.0)))
    >>> down.at(59.0), down.at(60.0)
    (300.0, 240.0)
    """

    steps: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        starts = [start_s for start_s, _ in self.steps]
        if not starts or starts[0] != 0.0 or not all(a < b for a, b in pairwise(starts)):
            raise ValueError(
                f"the times of a schedule must ascend from 0, got {starts}; begin with (0.0, cap)"
            )
        for _, cap_w in self.steps:
            if not 0.0 < cap_w < math.inf:
                raise ValueError(f"a cap must be positive and finite, got {cap_w:g} W")

    @classmethod
    def fixed(cls, cap_w: float) -> "CapSchedule":
        """Return the schedule of a cap that does not change."""
        return cls(((0.0, cap_w),))

    def at(self, t_s: float) -> float:
        """Return the cap in W, ``t_s`` seconds after the start."""
        return [cap_w for start_s, cap_w in self.steps if start_s <= t_s + _ROUNDING_S][-1]


def run(
    controller: Controller,
    plant: Plant,
    schedule: CapSchedule,
    *,
    windows: int,
    window_s: float = WINDOW_S,
) -> Iterator[tuple[Window, float]]:
    """Yield each window with its cap in W.

    ::

        start
        for each window: window
                         step, and cap_changed if the next window has another cap

    No step follows the last window.

    Args:
        controller: chooses operating points.
        plant: what it controls.
        schedule: the cap over time; time begins with the first window.
        windows: number of windows.
        window_s: length of a window, s.

    Raises:
        ValueError: if the controller cannot work with the abilities of the plant.
        PowerCapError: if a setting cannot be changed.
    """
    cap_w = schedule.at(0.0)
    plant.apply(controller.start(cap_w, plant.abilities))
    start_s: float | None = None
    for left in reversed(range(windows)):
        window = plant.window(window_s)
        start_s = window.start_s if start_s is None else start_s
        yield window, cap_w
        if not left:
            return
        point = controller.step(window)
        if (next_w := schedule.at(window.end_s - start_s)) != cap_w:
            cap_w = next_w
            point = controller.cap_changed(cap_w)
        plant.apply(point)


def share_above(windows: Sequence[tuple[Window, float]]) -> float:
    """Return the share of windows whose mean power is above their cap."""
    return sum(window.power_mean_w > cap_w for window, cap_w in windows) / max(len(windows), 1)
