"""Simulated cards whose settings the tests of actuators change."""

from collections.abc import Callable

import pynvml

from energy_callbacks.powercap.actuators.protocol import Actuator
from energy_callbacks.powercap.settings import Setting
from tests.fake_nvml import Card, Constant, FakeNvml, PowerModel, Scenario, card_uuid, ideal

Play = Callable[..., FakeNvml]
UUID = card_uuid(0)
MODEL = PowerModel(busy_w=600.0)


def card(**changes: object) -> Card:
    """A card that draws 600 W at full load; limits 200 to 700 W, clocks 345 to 1980 MHz."""
    return ideal(Constant(600.0), **{"model": MODEL, **changes})


def playing(fake_nvml: Play, *cards: Card, virtual: bool = True, **scenario: object) -> FakeNvml:
    """The library with these cards, or one card."""
    return fake_nvml(Scenario(cards=cards or (card(),), **scenario), virtual=virtual)


def limit_w(index: int = 0) -> float:
    """The power limit of a card, read by NVML itself."""
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    return pynvml.nvmlDeviceGetPowerManagementLimit(handle) / 1e3


def clock_mhz() -> float:
    """The present clock of the first card."""
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    return float(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM))


def calls(nvml: FakeNvml) -> list[tuple[str, float, int]]:
    """All calls of setters so far: name, value and NVML's code."""
    return [(one.call, one.value, one.result) for one in nvml.setter_calls()]


def lock_and_release_clocks(nvml: FakeNvml, actuator: Actuator) -> None:
    """Lock and release both clocks of the first card, and check what NVML was told."""
    actuator.write(UUID, Setting(knob="clock", value=1410.0))
    assert clock_mhz() == 1410
    actuator.write(UUID, Setting(knob="clock", value=None))
    actuator.write(UUID, Setting(knob="memory_clock", value=1300.0))
    actuator.write(UUID, Setting(knob="memory_clock", value=None))
    assert calls(nvml) == [
        ("clock", 1410.0, 0),
        ("clock", 0.0, 0),
        ("memory_clock", 1300.0, 0),
        ("memory_clock", 0.0, 0),
    ]
