"""zeusd changes cards that this process may not change, and only if its numbers are ours."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from energy_callbacks.core.errors import ActuatorError
from energy_callbacks.powercap.actuators.zeusd import ZeusdActuator
from energy_callbacks.powercap.settings import Setting
from tests.fake_nvml import card_uuid, fixtures
from tests.powercap.actuators.cards import (
    UUID,
    Play,
    calls,
    card,
    limit_w,
    lock_and_release_clocks,
    playing,
)
from tests.powercap.actuators.zeusd_server import TOKEN, socket_path, zeusd

fake_nvml = fixtures.fake_nvml
LIMIT = Setting(knob="limit", value=450.5)
NAME = "Ideal GPU"


@pytest.fixture
def socket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The path of the daemon's socket, which the environment names."""
    monkeypatch.delenv("ZEUSD_TOKEN", raising=False)
    with socket_path() as path:
        monkeypatch.setenv("ZEUSD_SOCK_PATH", str(path))
        yield path


def test_the_daemon_changes_the_card_for_us(fake_nvml: Play, socket: Path) -> None:
    """A limit reaches the second of two cards that refuse this process."""
    playing(fake_nvml, card(can_write=False), card(can_write=False))
    with zeusd(socket, (NAME, NAME)) as requests:
        ZeusdActuator().write(card_uuid(1), LIMIT)
    assert (limit_w(0), limit_w(1)) == (700.0, 450.5)
    assert requests == ["/gpu/set_power_limit?gpu_ids=1&power_limit_mw=450500&block=true"]


def test_clocks_are_locked_and_released(fake_nvml: Play, socket: Path) -> None:
    """Clocks of multiprocessors and memory are set and reset."""
    nvml = playing(fake_nvml, card(can_write=False, low_memory_clock_mhz=1300.0))
    with zeusd(socket, (NAME,)):
        lock_and_release_clocks(nvml, ZeusdActuator())


def test_a_probe_only_reads(fake_nvml: Play, socket: Path) -> None:
    """The probe finds the daemon and sends no request that changes something."""
    nvml = playing(fake_nvml, card(can_write=False))
    with zeusd(socket, (NAME,)) as requests:
        probe = ZeusdActuator().probe(UUID)
    assert probe.can_write is True
    assert f"answers at {socket}" in probe.found
    assert (requests, calls(nvml)) == ([], [])


@pytest.mark.parametrize(
    ("names", "discovery", "message"),
    [
        ((NAME,), {"enabled_api_groups": ["gpu-read"]}, "does not offer 'gpu-control'"),
        ((NAME,), {"gpus": None}, "use zeusd 0.16 or later"),
        ((NAME, NAME), {}, "lists other GPUs"),
        (("NVIDIA H200",), {}, "lists other GPUs"),
        ((NAME,), {"auth_required": True}, "requires a token.*ZEUSD_TOKEN"),
    ],
)
def test_a_daemon_that_cannot_be_used_gives_the_reason(
    fake_nvml: Play, socket: Path, names: tuple[str, ...], discovery: dict[str, Any], message: str
) -> None:
    """Without the API group, the token or the same list of GPUs, no request to change is sent."""
    playing(fake_nvml)
    with zeusd(socket, names, discovery=discovery) as requests:
        probe = ZeusdActuator().probe(UUID)
        with pytest.raises(ActuatorError, match=message):
            ZeusdActuator().write(UUID, LIMIT)
    assert probe.can_write is False
    assert requests == []


@pytest.mark.parametrize(("scopes", "can_write"), [(("gpu-control",), True), (("x",), False)])
def test_the_token_of_the_environment_is_used(
    fake_nvml: Play,
    socket: Path,
    monkeypatch: pytest.MonkeyPatch,
    scopes: tuple[str, ...],
    can_write: bool,
) -> None:
    """A token counts only if it permits changes; no text has it."""
    playing(fake_nvml)
    monkeypatch.setenv("ZEUSD_TOKEN", TOKEN)
    with zeusd(socket, (NAME,), discovery={"auth_required": True}, scopes=scopes):
        probe = ZeusdActuator().probe(UUID)
    assert probe.can_write is can_write
    assert TOKEN not in repr(probe)


def test_without_a_daemon_the_probe_says_so(fake_nvml: Play, socket: Path) -> None:
    """The probe names the socket, and how to get the daemon."""
    playing(fake_nvml)
    probe = ZeusdActuator().probe(UUID)
    assert probe.can_write is False
    assert f"does not answer at {socket}" in probe.found
    assert "an administrator installs" in probe.needs


def test_a_refused_request_is_an_error_with_the_answer(fake_nvml: Play, socket: Path) -> None:
    """The text of the daemon is in the error."""
    playing(fake_nvml)
    with (
        zeusd(socket, (NAME,), refusal="NVML error: busy"),
        pytest.raises(ActuatorError, match=r"zeusd answers set_power_limit with 400.*busy"),
    ):
        ZeusdActuator().write(UUID, LIMIT)
