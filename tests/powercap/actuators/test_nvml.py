"""NVML: ranges, values and refusals of a simulated card."""

import threading

import pynvml
import pytest

from energy_callbacks.core.errors import ActuatorError
from energy_callbacks.powercap.actuators import privilege
from energy_callbacks.powercap.actuators.nvml import NvmlActuator
from energy_callbacks.powercap.settings import Knob, KnobRange, Setting
from energy_callbacks.sensing import time_limit
from tests.core.waiting import until_ended
from tests.fake_nvml import Constant, Mig, card_uuid, fixtures, pascal
from tests.powercap.actuators.cards import UUID, Play, calls, card, clock_mhz, limit_w, playing

fake_nvml = fixtures.fake_nvml
LIMIT = Setting(knob="limit", value=450.0)
CLOCK = Setting(knob="clock", value=1410.0)
MEMORY = Setting(knob="memory_clock", value=1300.0)


def test_ranges_are_those_of_the_card(fake_nvml: Play) -> None:
    """Limits have the card's constraints; clocks are its list of clocks, ascending."""
    playing(fake_nvml, card(low_memory_clock_mhz=1300.0))
    nvml = NvmlActuator()
    assert nvml.range(UUID, "limit") == KnobRange(
        knob="limit", lowest=200.0, highest=700.0, present=700.0, default=700.0
    )
    clocks = nvml.range(UUID, "clock")
    assert clocks.steps == tuple(float(mhz) for mhz in range(345, 1981, 15))
    assert (clocks.lowest, clocks.highest, clocks.present) == (345.0, 1980.0, None)
    assert nvml.range(UUID, "memory_clock").steps == (1300.0, 2600.0)


def test_the_right_card_is_changed(fake_nvml: Play) -> None:
    """A limit is written to the card with the UUID and to no other."""
    nvml = playing(fake_nvml, card(), card())
    NvmlActuator().write(card_uuid(1), LIMIT)
    assert (limit_w(0), limit_w(1)) == (700.0, 450.0)
    assert [one.card for one in nvml.setter_calls()] == [1]
    assert NvmlActuator().read(card_uuid(1), "limit") == 450.0


def test_clocks_are_locked_and_released(fake_nvml: Play) -> None:
    """A locked clock is an upper bound; ``None`` ends the lock. The same for the memory."""
    nvml = playing(fake_nvml, card(low_memory_clock_mhz=1300.0))
    actuator = NvmlActuator()
    actuator.write(UUID, CLOCK)
    assert clock_mhz() == 1410
    actuator.write(UUID, MEMORY)
    actuator.write(UUID, Setting(knob="memory_clock", value=None))
    actuator.write(UUID, Setting(knob="clock", value=None))
    assert clock_mhz() == 1980
    assert calls(nvml) == [
        ("clock", 1410.0, 0),
        ("memory_clock", 1300.0, 0),
        ("memory_clock", 0.0, 0),
        ("clock", 0.0, 0),
    ]


@pytest.mark.parametrize(
    "setting",
    [
        Setting(knob="limit", value=199.0),
        Setting(knob="limit", value=701.0),
        Setting(knob="limit", value=None),
        Setting(knob="clock", value=1411.0),
        Setting(knob="memory_clock", value=1.0),
    ],
)
def test_values_that_the_card_does_not_have_are_not_written(
    fake_nvml: Play, setting: Setting
) -> None:
    """A value outside of the range is an error before any setter is called."""
    nvml = playing(fake_nvml)
    with pytest.raises(ValueError, match=r"must be|needs a value"):
        NvmlActuator().write(UUID, setting)
    assert calls(nvml) == []


def test_what_contradicts_a_setting(fake_nvml: Play) -> None:
    """Another limit contradicts a limit; a clock above it contradicts a locked clock."""
    playing(fake_nvml)
    actuator = NvmlActuator()
    actuator.write(UUID, LIMIT)
    actuator.write(UUID, CLOCK)
    assert actuator.agrees(UUID, LIMIT)
    assert actuator.agrees(UUID, CLOCK)
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    pynvml.nvmlDeviceSetPowerManagementLimit(handle, 600_000)
    pynvml.nvmlDeviceResetGpuLockedClocks(handle)
    assert not actuator.agrees(UUID, LIMIT)
    assert not actuator.agrees(UUID, CLOCK)
    assert actuator.agrees(UUID, Setting(knob="clock", value=None))


@pytest.mark.parametrize("is_admin", [True, False])
def test_a_probe_tells_the_permission_and_only_reads(
    fake_nvml: Play, monkeypatch: pytest.MonkeyPatch, is_admin: bool
) -> None:
    """The probe of an unprivileged process says what is lacking; no setter is called."""
    monkeypatch.setattr(privilege, "is_admin", lambda: is_admin)
    nvml = playing(fake_nvml)
    probe = NvmlActuator().probe(UUID)
    assert probe.can_write is is_admin
    assert probe.knobs == ("limit", "clock", "memory_clock")
    assert ("lacks" in probe.found) is not is_admin
    assert "CAP_SYS_ADMIN" in probe.needs
    assert calls(nvml) == []


def test_a_refused_change_names_what_it_needs(fake_nvml: Play) -> None:
    """If the driver refuses the permission, the error says how to get it."""
    nvml = playing(fake_nvml, card(can_write=False))
    with pytest.raises(ActuatorError, match="does not permit the change; it needs root"):
        NvmlActuator().write(UUID, LIMIT)
    assert calls(nvml) == [("limit", 450.0, pynvml.NVML_ERROR_NO_PERMISSION)]
    assert limit_w() == 700.0


@pytest.mark.parametrize("uuid", [UUID, "MIG-0"])
def test_mig_is_refused_with_its_reason(fake_nvml: Play, uuid: str) -> None:
    """Neither a card with MIG nor an instance of it is changed."""
    nvml = playing(fake_nvml, card(mig_instances=(Mig(uuid="MIG-0", gpu_instance=1),)))
    actuator = NvmlActuator()
    with pytest.raises(ActuatorError, match="MIG is enabled"):
        actuator.write(uuid, LIMIT)
    probe = actuator.probe(uuid)
    assert (probe.knobs, probe.can_write) == ((), False)
    assert "MIG is enabled" in probe.found
    assert calls(nvml) == []


def test_cards_before_volta_have_a_limit_only(
    fake_nvml: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A P100 has a power limit, and no clocks that can be locked."""
    monkeypatch.setattr(privilege, "is_admin", lambda: True)
    playing(fake_nvml, pascal(Constant(200.0)))
    actuator = NvmlActuator()
    assert actuator.probe(UUID).knobs == ("limit",)
    with pytest.raises(ActuatorError, match="does not support"):
        actuator.write(UUID, CLOCK)


@pytest.mark.parametrize("knob", ["limit", "clock"])
def test_a_missing_card_or_driver_is_named(fake_nvml: Play, knob: Knob) -> None:
    """Probes do not raise if the card or the driver is missing; ``range`` says which."""
    nvml = playing(fake_nvml)
    with pytest.raises(ActuatorError, match="no GPU with the UUID GPU-none"):
        NvmlActuator().range("GPU-none", knob)
    nvml.close()
    with pytest.raises(ActuatorError, match="driver is not installed"):
        NvmlActuator().range(UUID, knob)
    probe = NvmlActuator().probe(UUID)
    assert (probe.can_write, probe.knobs) == (False, ())
    assert "driver is not installed" in probe.found


def test_a_knob_of_another_actuator_is_refused(fake_nvml: Play) -> None:
    """NVML has no duty cycle."""
    playing(fake_nvml)
    with pytest.raises(ActuatorError, match="nvml cannot change 'duty'; it has limit, clock"):
        NvmlActuator().range(UUID, "duty")


def test_a_driver_that_does_not_answer_ends_by_the_time_limit(
    fake_nvml: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A setter that hangs is an error after the time limit, and so is the next call."""
    ended = threading.Event()
    playing(fake_nvml)
    monkeypatch.setattr(time_limit, "PATIENCE_S", 0.03)
    monkeypatch.setattr(pynvml, "nvmlDeviceSetPowerManagementLimit", lambda *_: ended.wait(60.0))
    actuator = NvmlActuator()
    for _ in range(2):
        with pytest.raises(ActuatorError, match="driver does not answer"):
            actuator.write(UUID, LIMIT)
    ended.set()
    until_ended(f"energy_callbacks settings of {UUID}")


def test_success_without_effect_is_an_error(
    fake_nvml: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit is read back: a driver that ignores it is an error."""
    playing(fake_nvml)
    monkeypatch.setattr(pynvml, "nvmlDeviceSetPowerManagementLimit", lambda *_: None)
    with pytest.raises(ActuatorError, match="limit is 700 W, not 450 W"):
        NvmlActuator().write(UUID, LIMIT)
