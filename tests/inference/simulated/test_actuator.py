"""Tests of ``SimulatedActuator``, with the code that changes and restores settings."""

from pathlib import Path

import pytest

from energy_callbacks.core.errors import ActuatorError, ForeignChange
from energy_callbacks.inference.simulated.actuator import SimulatedActuator
from energy_callbacks.powercap.safety.changed_cards import ChangedCards
from energy_callbacks.powercap.settings import Knob, Setting
from tests.inference.simulated.cards import UUID, gpu, measured, tenants

LOW = Setting(knob="limit", value=150.0)


def test_ranges() -> None:
    """Limits have a range, clocks a list of values, and no lock is known."""
    actuator = SimulatedActuator(gpu())
    limit, clock, memory = (
        actuator.range(UUID, knob) for knob in ("limit", "clock", "memory_clock")
    )
    assert (limit.lowest, limit.highest, limit.present) == (100.0, 400.0, 400.0)
    assert (clock.steps[0], clock.steps[-1], clock.present) == (300.0, 1500.0, None)
    assert memory.steps == (500.0, 1000.0)
    assert set(actuator.probe(UUID).knobs) == {"limit", "clock", "memory_clock"}
    assert actuator.probe(UUID).can_write


def test_settings_are_changed_and_restored(tmp_path: Path) -> None:
    """The safety code changes limit and clock of a simulated GPU, and restores both."""
    one = gpu()
    with ChangedCards(
        SimulatedActuator(one), [UUID], allow_changes=True, folder=tmp_path
    ) as changed:
        changed.set(LOW)
        changed.set(Setting(knob="clock", value=1200.0))
        row = measured(one)
        assert row.power_mean_w is not None
        assert row.power_mean_w < 151.0
        assert row.sm_mhz_measured is not None
        assert row.sm_mhz_measured <= 1200.0
    assert one.range("limit").present == 400.0
    assert measured(one).sm_mhz_measured == 1500.0
    assert not list(tmp_path.glob("*.json"))


def test_a_foreign_change(tmp_path: Path) -> None:
    """The limit of another process stops further changes, and stays."""
    one = gpu(foreign_limits=((1.0, 300.0),))
    with ChangedCards(
        SimulatedActuator(one), [UUID], allow_changes=True, folder=tmp_path
    ) as changed:
        changed.set(LOW)
        one.run(tenants("busy", 100.0))
        one.advance(2.0)
        with pytest.raises(ForeignChange):
            changed.set(LOW)
    assert one.range("limit").present == 300.0


def test_no_permission() -> None:
    """It can be read, but not written."""
    one = gpu(has_permission=False)
    actuator = SimulatedActuator(one)
    assert actuator.probe(UUID).can_write is False
    assert actuator.read(UUID, "limit") == 400.0
    with pytest.raises(ActuatorError, match="does not permit"):
        actuator.write(UUID, LOW)
    assert one.range("limit").present == 400.0


@pytest.mark.parametrize("knob", ["limit", "clock", "memory_clock"])
def test_not_supported(knob: Knob) -> None:
    """A GPU may lack a knob; the other ones work."""
    actuator = SimulatedActuator(gpu(unsupported=frozenset({knob})))
    assert knob not in actuator.probe(UUID).knobs
    assert len(actuator.probe(UUID).knobs) == 2
    with pytest.raises(ActuatorError, match="does not support"):
        actuator.range(UUID, knob)


def test_a_gpu_that_is_lost() -> None:
    """Nothing can be read or written, and a probe says so."""
    one = gpu(lost_at_s=0.5)
    actuator = SimulatedActuator(one)
    with pytest.raises(ActuatorError):
        one.advance(1.0)
    assert actuator.probe(UUID).can_write is False
    assert "lost" in actuator.probe(UUID).found
    with pytest.raises(ActuatorError, match="lost"):
        actuator.read(UUID, "limit")


def test_a_refused_clock_is_contradicted() -> None:
    """The driver accepts the clock, but the GPU does not agree with it afterwards."""
    actuator = SimulatedActuator(gpu(refuses_clocks=True))
    setting = Setting(knob="clock", value=900.0)
    actuator.write(UUID, setting)
    assert not actuator.agrees(UUID, setting)


def test_an_unknown_gpu() -> None:
    """An error names its UUID."""
    with pytest.raises(ActuatorError, match="no simulated GPU with the UUID SIM-other"):
        SimulatedActuator(gpu()).read("SIM-other", "limit")


def test_a_process_without_the_gpu() -> None:
    """A watchdog, which has no simulated GPU, is ready, and its writes have no effect."""
    watchdog = SimulatedActuator()
    assert watchdog.probe(UUID).can_write
    assert watchdog.agrees(UUID, LOW)
    watchdog.write(UUID, LOW)
