"""Actuators that change no card: duty cycle, dry run, advice."""

import logging

import pytest

from energy_callbacks.core.errors import ActuatorError
from energy_callbacks.powercap.actuators.batch_advice import BatchAdvice
from energy_callbacks.powercap.actuators.dry_run import DryRun
from energy_callbacks.powercap.actuators.duty_cycle import DutyCycle, share_for_cap
from energy_callbacks.powercap.actuators.nvml import NvmlActuator
from energy_callbacks.powercap.settings import Setting
from tests.fake_nvml import card_uuid, fixtures
from tests.powercap.actuators.cards import UUID, Play, calls, limit_w, playing

fake_nvml = fixtures.fake_nvml
LIMIT = Setting(knob="limit", value=450.0)


def test_a_duty_cycle_sleeps_its_share() -> None:
    """At a share of 0.8, a step of 0.2 s is followed by 0.05 s of sleep; at 1 by none."""
    duty = DutyCycle()
    assert duty.sleep_s(0.2) == 0.0
    duty.write(UUID, Setting(knob="duty", value=0.8))
    assert duty.sleep_s(0.2) == pytest.approx(0.05)
    assert duty.read(UUID, "duty") == 0.8
    assert duty.agrees(UUID, Setting(knob="duty", value=0.8))
    duty.write(card_uuid(1), Setting(knob="duty", value=0.5))
    assert duty.sleep_s(0.2) == pytest.approx(0.2)


def test_a_duty_cycle_keeps_the_mean_power() -> None:
    """The share for a cap gives exactly the cap as the mean power over step and sleep."""
    share = share_for_cap(cap_w=280.0, busy_w=400.0, idle_w=80.0)
    assert share * 400.0 + (1.0 - share) * 80.0 == pytest.approx(280.0)
    assert share_for_cap(cap_w=500.0, busy_w=400.0, idle_w=80.0) == 1.0
    assert share_for_cap(cap_w=10.0, busy_w=400.0, idle_w=80.0) == 0.1
    assert share_for_cap(cap_w=10.0, busy_w=80.0, idle_w=80.0) == 1.0


@pytest.mark.parametrize("value", [0.0, 1.1, None])
def test_impossible_shares_are_refused(value: float | None) -> None:
    """A share outside of 0.1 to 1 is an error, and nothing sleeps."""
    duty = DutyCycle()
    with pytest.raises(ValueError, match="duty"):
        duty.write(UUID, Setting(knob="duty", value=value))
    assert duty.sleep_s(1.0) == 0.0


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
