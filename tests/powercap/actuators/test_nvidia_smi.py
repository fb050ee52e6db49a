"""``sudo -n nvidia-smi`` changes a card that this process may not change."""

import sys
from pathlib import Path

import pytest

from energy_callbacks.core.errors import ActuatorError
from energy_callbacks.powercap.actuators.nvidia_smi import NvidiaSmiActuator
from energy_callbacks.powercap.settings import Setting
from tests.fake_nvml import FakeNvml, card_uuid, fixtures
from tests.powercap.actuators.cards import (
    UUID,
    Play,
    calls,
    card,
    limit_w,
    lock_and_release_clocks,
    playing,
)

fake_nvml = fixtures.fake_nvml
LIMIT = Setting(knob="limit", value=450.5)

SUDO = """#!/bin/sh
printf '%s\\n' "$*" >> "$SUDO_LOG"
[ "$1" = -n ] || { echo "sudo: asks for a password" >&2; exit 9; }
shift
[ -z "$SUDO_REFUSES" ] || { echo "sudo: a password is required" >&2; exit 1; }
[ "$1" = -l ] && { echo /usr/bin/nvidia-smi; exit 0; }
FAKE_NVML_ROOT=1 exec "$@"
"""
SMI = """#!{python}
import sys, pynvml
_, i, uuid, option = sys.argv
name, _, value = option.partition("=")
pynvml.nvmlInit()
card = pynvml.nvmlDeviceGetHandleByUUID(uuid)
numbers = [int(n) for n in value.split(",")] if "clocks=" in option else []
try:
    if name == "--power-limit":
        pynvml.nvmlDeviceSetPowerManagementLimit(card, round(float(value) * 1e3))
    elif name == "--lock-gpu-clocks":
        pynvml.nvmlDeviceSetGpuLockedClocks(card, *numbers)
    elif name == "--lock-memory-clocks":
        pynvml.nvmlDeviceSetMemoryLockedClocks(card, *numbers)
    elif name == "--reset-gpu-clocks":
        pynvml.nvmlDeviceResetGpuLockedClocks(card)
    elif name == "--reset-memory-clocks":
        pynvml.nvmlDeviceResetMemoryLockedClocks(card)
    else:
        sys.exit(f"Invalid option: {{option}}")
except pynvml.NVMLError as error:
    sys.exit(f"Failed: {{error}}")
"""


def install(
    nvml: FakeNvml, folder: Path, monkeypatch: pytest.MonkeyPatch, *, programs: str = "both"
) -> Path:
    """Put both programs on the PATH, and give children the library; return the log of sudo."""
    for name, text in (("sudo", SUDO), ("nvidia-smi", SMI.format(python=sys.executable))):
        if programs in ("both", name):
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
    for key, value in nvml.env().items():
        monkeypatch.setenv(key, value)
    monkeypatch.setenv("PATH", f"{folder}:/bin" if programs == "both" else str(folder))
    monkeypatch.setenv("SUDO_LOG", str(folder / "sudo.log"))
    return folder / "sudo.log"


def test_nvidia_smi_changes_the_card_for_us(
    fake_nvml: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit reaches the second of two cards that refuse this process."""
    nvml = playing(fake_nvml, card(can_write=False), card(can_write=False))
    log = install(nvml, tmp_path, monkeypatch)
    NvidiaSmiActuator().write(card_uuid(1), LIMIT)
    assert (limit_w(0), limit_w(1)) == (700.0, 450.5)
    assert log.read_text() == f"-n nvidia-smi -i {card_uuid(1)} --power-limit=450.50\n"


def test_clocks_are_locked_and_released(
    fake_nvml: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clocks of multiprocessors and memory are set and reset."""
    nvml = playing(fake_nvml, card(can_write=False, low_memory_clock_mhz=1300.0))
    install(nvml, tmp_path, monkeypatch)
    lock_and_release_clocks(nvml, NvidiaSmiActuator())


def test_a_probe_asks_sudo_and_runs_nothing(
    fake_nvml: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The probe asks what sudo permits; only an attempt tells whether a password is needed."""
    nvml = playing(fake_nvml, card(can_write=False))
    log = install(nvml, tmp_path, monkeypatch)
    probe = NvidiaSmiActuator().probe(UUID)
    assert probe.can_write is None
    assert log.read_text().startswith("-n -l nvidia-smi")
    assert log.read_text().count("\n") == 1
    assert calls(nvml) == []


def test_a_password_is_never_asked_for(
    fake_nvml: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where sudo wants a password, the probe says no, and a change is an error with the rule."""
    nvml = playing(fake_nvml, card(can_write=False))
    install(nvml, tmp_path, monkeypatch)
    monkeypatch.setenv("SUDO_REFUSES", "1")
    probe = NvidiaSmiActuator().probe(UUID)
    assert probe.can_write is False
    assert "a password is required" in probe.found
    with pytest.raises(ActuatorError, match=r"a password is required.*NOPASSWD"):
        NvidiaSmiActuator().write(UUID, LIMIT)
    assert calls(nvml) == []


@pytest.mark.parametrize(
    ("present", "missing"),
    [("sudo", "nvidia-smi"), ("nvidia-smi", "sudo"), ("none", "sudo and nvidia-smi")],
)
def test_missing_programs_are_named(
    fake_nvml: Play,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    present: str,
    missing: str,
) -> None:
    """The probe names the program that is not installed."""
    install(playing(fake_nvml), tmp_path, monkeypatch, programs=present)
    probe = NvidiaSmiActuator().probe(UUID)
    assert (probe.can_write, probe.found) == (False, f"{missing} not found on the PATH")


def test_an_error_of_nvidia_smi_is_shown(
    fake_nvml: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last line of the output of nvidia-smi is in the error."""
    nvml = playing(fake_nvml, card(can_write=False))
    install(nvml, tmp_path, monkeypatch)
    (tmp_path / "sudo").write_text(SUDO.replace("FAKE_NVML_ROOT=1 ", ""))
    with pytest.raises(ActuatorError, match="Failed: Insufficient Permissions"):
        NvidiaSmiActuator().write(UUID, LIMIT)
