"""The loop that runs a controller."""

import pytest

from energy_callbacks.inference.control.loop import CapSchedule, run, share_above
from energy_callbacks.inference.control.protocols import Abilities, Need, OperatingPoint, Window
from energy_callbacks.inference.records import Configuration
from tests.inference.control.law import LawPlant, tenants


class _Recorder:
    name = "recorder"
    needs: frozenset[Need] = frozenset()
    degraded = ""

    def __init__(self) -> None:
        self.calls: list[tuple[str, float]] = []

    def start(self, cap_w: float, abilities: Abilities) -> OperatingPoint:
        return self._add("start", cap_w)

    def cap_changed(self, cap_w: float) -> OperatingPoint:
        return self._add("cap", cap_w)

    def step(self, window: Window) -> OperatingPoint:
        return self._add("step", window.end_s)

    def _add(self, call: str, value: float) -> OperatingPoint:
        self.calls.append((call, value))
        return OperatingPoint(configuration=Configuration(tenants=tenants(1)))


def test_a_cap_changes_before_the_first_window_that_has_it() -> None:
    """A cap from 2 s on is told after two windows of 1 s, and the third one has it."""
    controller, plant = _Recorder(), LawPlant()
    schedule = CapSchedule(((0.0, 200.0), (2.0, 100.0)))
    caps = [cap_w for _, cap_w in run(controller, plant, schedule, windows=4)]
    assert caps == [200.0, 200.0, 100.0, 100.0]
    assert controller.calls[:4] == [("start", 200.0), ("step", 1.0), ("step", 2.0), ("cap", 100.0)]
    assert controller.calls[4:] == [("step", 3.0)]  # none after the last window


def test_caps_are_those_of_the_time_since_the_first_window() -> None:
    """A plant whose clock is at 1 s when the loop starts has the first cap for its whole time."""
    plant = LawPlant()
    plant.apply(OperatingPoint(configuration=Configuration(tenants=tenants(1))))
    plant.window(1.0)
    schedule = CapSchedule(((0.0, 200.0), (2.0, 100.0)))
    caps = [cap_w for _, cap_w in run(_Recorder(), plant, schedule, windows=3)]
    assert caps == [200.0, 200.0, 100.0]


@pytest.mark.parametrize(
    "steps",
    [
        (),
        ((1.0, 200.0),),
        ((0.0, 200.0), (0.0, 100.0)),
        ((0.0, 0.0),),
        ((0.0, 200.0), (float("nan"), 100.0)),
    ],
)
def test_a_schedule_begins_at_0_ascends_and_has_positive_caps(
    steps: tuple[tuple[float, float], ...],
) -> None:
    """Other schedules are refused at construction."""
    with pytest.raises(ValueError, match=r"ascend from 0|positive"):
        CapSchedule(steps)


def test_the_share_above_counts_windows_whose_mean_power_is_above_their_cap() -> None:
    """One of two windows at 70 W is above its cap of 60 W."""
    plant = LawPlant()
    found = list(run(_Recorder(), plant, CapSchedule(((0.0, 1e3), (1.0, 60.0))), windows=2))
    assert share_above(found) == 0.5
