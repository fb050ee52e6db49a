"""Power limits of AMD and Intel GPUs are read, written and read back, in watts."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from energy_callbacks.core.errors import ActuatorError
from energy_callbacks.powercap.actuators import privilege
from energy_callbacks.powercap.actuators.choose import choose
from energy_callbacks.powercap.actuators.hwmon import HwmonActuator
from energy_callbacks.powercap.settings import KnobRange, Setting
from energy_callbacks.sensing import time_limit
from energy_callbacks.sensing.sources.sysfs.family import SYSFS_VARIABLE
from tests.core.waiting import until_ended
from tests.powercap.actuators.hwmon_cards import ADDRESSES, amd_card, intel_card, set_unique_id

AMD, INTEL = ADDRESSES


def limit(value: float | None) -> Setting:
    """A power limit."""
    return Setting(knob="limit", value=value)


def test_amd(tmp_path: Path) -> None:
    """The four files of ``amdgpu`` are the range; a new limit is in microwatts."""
    file = amd_card(tmp_path)
    actuator = HwmonActuator(tmp_path)
    whole = {"highest": 700.0, "present": 700.0, "default": 700.0}
    assert actuator.range(AMD, "limit") == KnobRange(knob="limit", lowest=200.0, **whole)
    actuator.write(AMD, limit(300.5))
    assert file.read_text() == "300500000"
    assert actuator.read(AMD, "limit") == 300.5


def test_intel(tmp_path: Path) -> None:
    """The rated limit is the highest one, and half of it the lowest; parts of the GPU are left."""
    file = intel_card(tmp_path)
    actuator = HwmonActuator(tmp_path)
    whole = {"highest": 190.0, "present": 190.0, "default": 190.0}
    assert actuator.range(INTEL, "limit") == KnobRange(knob="limit", lowest=95.0, **whole)
    actuator.write(INTEL, limit(120.0))
    assert file.read_text() == "120000000"


def test_a_card_is_named_by_its_number(tmp_path: Path) -> None:
    """The UUID of an AMD GPU is that of its file ``unique_id``."""
    files = [amd_card(tmp_path, address) for address in ADDRESSES]
    set_unique_id(tmp_path, ADDRESSES[0], "1f00000000000001")
    set_unique_id(tmp_path, ADDRESSES[1], "1f00000000000002")
    actuator = HwmonActuator(tmp_path)
    actuator.write("GPU-1f00000000000002", limit(300.0))
    actuator.write("GPU-1f00000000000001", limit(400.0))
    assert [file.read_text() for file in files] == ["400000000", "300000000"]


def test_whole_watts_agree(tmp_path: Path) -> None:
    """A driver that rounds down to whole watts agrees, and one that keeps its limit does not."""
    file = amd_card(tmp_path, power1_cap="300000000")
    actuator = HwmonActuator(tmp_path)
    assert actuator.agrees(AMD, limit(300.9))
    assert not actuator.agrees(AMD, limit(301.0))
    assert not actuator.agrees(AMD, limit(None))
    file.unlink()
    file.symlink_to("/dev/null")
    with pytest.raises(ActuatorError, match="disabled or cannot be read"):
        actuator.agrees(AMD, limit(300.0))


def test_a_limit_that_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that accepts a value without setting it is detected by reading it back."""
    amd_card(tmp_path)
    monkeypatch.setattr(Path, "write_text", lambda *_, **__: 0)
    with pytest.raises(ActuatorError, match=r"is 700 W, not 300 W"):
        HwmonActuator(tmp_path).write(AMD, limit(300.0))


@pytest.mark.parametrize("present", [300.0, 600.0])
def test_no_lowest_limit(tmp_path: Path, present: float) -> None:
    """Older drivers show 0 as the lowest limit: half of the highest is proposed instead.

    A present limit below it stays in the range, and can be restored.
    """
    amd_card(tmp_path, power1_cap_min="0", power1_cap=f"{present:.0f}000000")
    actuator = HwmonActuator(tmp_path)
    assert actuator.range(AMD, "limit").lowest == min(350.0, present)
    actuator.write(AMD, limit(500.0))
    assert actuator.range(AMD, "limit").lowest == 350.0
    actuator.write(AMD, limit(present))
    assert actuator.read(AMD, "limit") == present


@pytest.mark.parametrize("value", [None, 0.0, -5.0, 0.5])
def test_no_limit_is_written(tmp_path: Path, value: float | None) -> None:
    """0 would disable the limit of an Intel GPU, and is refused, as are values below 1 W."""
    file = intel_card(tmp_path)
    with pytest.raises(ValueError, match="at least 1 W, got"):
        HwmonActuator(tmp_path).write(INTEL, limit(value))
    assert file.read_text() == "190000000\n"


@pytest.mark.parametrize("text", ["0", "N/A", ""])
def test_a_disabled_limit(tmp_path: Path, text: str) -> None:
    """A limit that is disabled, or of the second die of a card, is not changed."""
    intel_card(tmp_path, power1_max=text)
    actuator = HwmonActuator(tmp_path)
    with pytest.raises(ActuatorError, match="disabled or cannot be read"):
        actuator.write(INTEL, limit(100.0))
    assert actuator.probe(INTEL).knobs == ()


def test_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The probe has the rule that permits it, and a refused write has it too; nothing changes."""
    file = amd_card(tmp_path)
    actuator = HwmonActuator(tmp_path)
    assert actuator.probe(AMD).can_write is True
    monkeypatch.setattr(os, "access", lambda *_: False)
    probe = actuator.probe(AMD)
    assert (probe.knobs, probe.can_write) == (("limit",), False)
    assert probe.found == f"{file} is not writable for this user"
    assert 'ATTR{name}=="amdgpu"' in probe.needs
    assert "chgrp video /sys%p/power1_cap && chmod g+w /sys%p/power1_cap" in probe.needs

    def refuse(*_: object, **__: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "write_text", refuse)
    with pytest.raises(ActuatorError, match=r"Permission denied.*rules\.d"):
        actuator.write(AMD, limit(300.0))


def test_what_it_cannot_change(tmp_path: Path) -> None:
    """No clocks, no GPUs of other vendors, no GPU without files: each reason names the GPU."""
    amd_card(tmp_path)
    actuator = HwmonActuator(tmp_path)
    with pytest.raises(ActuatorError, match="hwmon cannot change 'clock'"):
        actuator.range(AMD, "clock")
    probe = actuator.probe("GPU-00000000-0000-4000-8000-000000000000")
    assert (probe.knobs, probe.can_write) == ((), False)
    assert "no power limit of an AMD or Intel GPU" in probe.found
    (tmp_path / "bus/pci/devices" / AMD / "vendor").write_text("0x10de\n")
    assert actuator.probe(AMD).knobs == ()


def test_a_driver_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read without an answer is an error after the time limit."""
    amd_card(tmp_path)
    ended = threading.Event()
    read: Callable[..., str] = Path.read_text

    def hang(path: Path, *words: object, **options: object) -> str:
        if path.name == "power1_cap":
            ended.wait(60.0)
        return read(path, *words, **options)

    monkeypatch.setattr(Path, "read_text", hang)
    monkeypatch.setattr(time_limit, "PATIENCE_S", 0.05)
    with pytest.raises(ActuatorError, match="no answer within"):
        HwmonActuator(tmp_path).range(AMD, "limit")
    ended.set()
    until_ended(f"energy_callbacks power limit of {AMD}")  # for the next call


def test_it_is_chosen_on_a_machine_without_nvidia(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment variable names the tree, as in a container."""
    monkeypatch.setattr(privilege, "is_admin", lambda: False)
    monkeypatch.setenv(SYSFS_VARIABLE, str(tmp_path))
    amd_card(tmp_path, AMD)
    intel_card(tmp_path, INTEL)
    assert choose([AMD, INTEL], "limit").name == "hwmon"
    with pytest.raises(ActuatorError, match="hwmon: it changes only limit"):
        choose([AMD], "clock")
