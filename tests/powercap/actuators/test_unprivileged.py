"""Actuators that change no card: duty cycle, dry run, advice."""

import logging

import pytest

from energy_callbacks.core.errors import ActuatorError
from energy_callbacks.powercap.actuators.batch_advice import BatchAdvice
from energy_callbacks.powercap.actuators.dry_run import DryRun
from energy_callbacks.powercap.actuators.duty_cycle import DutyCycle
from energy_callbacks.powercap.actuators.nvml import NvmlActuator
from energy_callbacks.powercap.settings import Setting
from tests.fake_nvml import card_uuid, fixtures
from tests.powercap.actuators.cards import UUID, Play, calls, limit_w, playing

fake_nvml = fixtures.fake_nvml
LIMIT = Setting(knob="limit", value=450.0)


def test_a_duty_cycle_stores_its_share() -> None:
    """The share that was written is read back."""
    duty = DutyCycle()
    assert duty.read(UUID, "duty") == 1.0
    duty.write(UUID, Setting(knob="duty", value=0.8))
    assert duty.read(UUID, "duty") == 0.8
    assert duty.agrees(UUID, Setting(knob="duty", value=0.8))
    assert duty.read(card_uuid(1), "duty") == 1.0


@pytest.mark.parametrize("value", [0.0, 1.1, None])
def test_impossible_shares_are_refused(value: float | None) -> None:
    """A share outside of 0.1 to 1 is an error, and nothing is stored."""
    duty = DutyCycle()
    with pytest.raises(ValueError, match="duty"):
        duty.write(UUID, Setting(knob="duty", value=value))
    assert duty.read(UUID, "duty") == 1.0


def test_a_duty_cycle_has_no_limit() -> None:
    """Another knob is refused with the reason."""
    with pytest.raises(ActuatorError, match="cannot change 'limit'; it has 'duty' only"):
        DutyCycle().write(UUID, LIMIT)


def test_a_dry_run_logs_and_writes_nothing(
    fake_nvml: Play, caplog: pytest.LogCaptureFixture
) -> None:
    """It checks the range, answers as if it had written, and calls no setter."""
    nvml = playing(fake_nvml)
    dry = DryRun(NvmlActuator())
    with caplog.at_level(logging.INFO):
        dry.write(UUID, LIMIT)
    assert f"would set limit 450 W on {UUID}" in caplog.text
    assert dry.read(UUID, "limit") == 450.0
    assert dry.agrees(UUID, LIMIT)
    with pytest.raises(ValueError, match="between 200 and 700 W"):
        dry.write(UUID, Setting(knob="limit", value=900.0))
    assert (limit_w(), calls(nvml)) == (700.0, [])


def test_a_dry_run_needs_a_card_but_no_permission(fake_nvml: Play) -> None:
    """Its probe has the knobs of the card, and what the other actuator found."""
    nvml = playing(fake_nvml)
    probe = DryRun(NvmlActuator()).probe(UUID)
    assert probe.can_write is True
    assert probe.knobs == ("limit", "clock", "memory_clock")
    assert probe.found.startswith("nvml: ")
    nvml.close()
    assert DryRun(NvmlActuator()).probe(UUID).can_write is False


def test_advice_changes_nothing() -> None:
    """The advice is in the probe and in the error."""
    advice = BatchAdvice()
    assert advice.probe(UUID).can_write is False
    assert "energy-callbacks tune" in advice.probe(UUID).found
    with pytest.raises(ActuatorError, match="energy-callbacks tune"):
        advice.write(UUID, LIMIT)
