"""The first actuator that may write is chosen; otherwise the error lists what each needs."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from energy_callbacks.core.errors import ActuatorError
from energy_callbacks.powercap.actuators import privilege
from energy_callbacks.powercap.actuators.choose import NAMES, actuator, choose
from energy_callbacks.powercap.settings import Knob
from tests.fake_nvml import Constant, Mig, card_uuid, fixtures, pascal
from tests.fake_nvml.library import load_library
from tests.powercap.actuators.cards import UUID, Play, calls, card, playing
from tests.powercap.actuators.test_nvidia_smi import install
from tests.powercap.actuators.zeusd_server import socket_path, zeusd

fake_nvml = fixtures.fake_nvml


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """No permission, no daemon, no programs; returns the path of the daemon's socket."""
    monkeypatch.setattr(privilege, "is_admin", lambda: False)
    load_library()  # the compiler needs the PATH
    monkeypatch.setenv("CC", shutil.which(os.environ.get("CC", "cc")) or "cc")
    monkeypatch.setenv("PATH", str(tmp_path))
    with socket_path() as path:
        monkeypatch.setenv("ZEUSD_SOCK_PATH", str(path))
        yield path


def test_nvml_is_chosen_first(fake_nvml: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """With permission, NVML is chosen, for each of its knobs, and nothing is written."""
    monkeypatch.setattr(privilege, "is_admin", lambda: True)
    nvml = playing(fake_nvml, card(), card())
    for knob in ("limit", "clock", "memory_clock"):
        assert choose([UUID, card_uuid(1)], knob).name == "nvml"
    assert calls(nvml) == []


def test_a_sure_permission_precedes_a_possible_one(
    fake_nvml: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alone: Path
) -> None:
    """nvidia-smi, of which only an attempt can tell, is chosen only without zeusd."""
    nvml = playing(fake_nvml, card(can_write=False))
    install(nvml, tmp_path, monkeypatch)
    assert choose([UUID], "limit").name == "nvidia-smi"
    with zeusd(alone, ("Ideal GPU",)):
        assert choose([UUID], "limit", names=("nvidia-smi", "zeusd")).name == "zeusd"
    assert calls(nvml) == []


def test_without_any_permission_the_error_lists_what_each_needs(fake_nvml: Play) -> None:
    """The error has a line for each actuator, with what was found and what it needs."""
    nvml = playing(fake_nvml)
    with pytest.raises(ActuatorError) as caught:
        choose([UUID], "limit")
    lines = str(caught.value).splitlines()
    assert lines[0] == "no actuator can change 'limit':"
    assert [line.split(":")[0] for line in lines[1:]] == [
        "- nvml", "- zeusd", "- nvidia-smi", "- hwmon", "- duty-cycle",
    ]  # fmt: skip
    assert "lacks CAP_SYS_ADMIN; it needs root" in lines[1]
    assert "it needs an AMD or Intel GPU" in lines[4]
    assert "it changes only duty" in lines[5]
    assert calls(nvml) == []


def test_a_duty_cycle_needs_no_permission(fake_nvml: Play) -> None:
    """Without permission, a duty cycle can always be chosen."""
    playing(fake_nvml)
    assert choose([UUID], "duty").name == "duty-cycle"


@pytest.mark.parametrize(
    ("second", "knob", "message"),
    [
        (card(mig_instances=(Mig(uuid="MIG-0", gpu_instance=1),)), "limit", "MIG is enabled"),
        (pascal(Constant(200.0)), "clock", "changes only limit"),
    ],
)
def test_one_card_that_cannot_decides_for_all(
    fake_nvml: Play, monkeypatch: pytest.MonkeyPatch, second: object, knob: Knob, message: str
) -> None:
    """All cards of a run get the same setting, so that one card without it refuses it."""
    monkeypatch.setattr(privilege, "is_admin", lambda: True)
    playing(fake_nvml, card(), second)
    with pytest.raises(ActuatorError, match=message):
        choose([UUID, card_uuid(1)], knob)


def test_every_actuator_has_its_name_and_a_probe(fake_nvml: Play) -> None:
    """Probes of all actuators say what they need, and write nothing."""
    nvml = playing(fake_nvml)
    found = [actuator(name).probe(UUID) for name in NAMES]
    assert [probe.actuator for probe in found] == list(NAMES)
    assert all(probe.needs and probe.found for probe in found)
    assert [actuator(name).name for name in NAMES] == list(NAMES)
    assert calls(nvml) == []


def test_mistakes_are_named() -> None:
    """An unknown name lists the known ones; no GPU is an error."""
    with pytest.raises(ValueError, match="no actuator 'nvlm'; choose from nvml, zeusd"):
        choose([UUID], "limit", names=["nvlm"])
    with pytest.raises(ActuatorError, match="no GPU"):
        choose([], "limit")
