"""Without consent no setter of NVML is called, at any entry point.

The callbacks of the frameworks are tested in ``tests/integrations/contract/power.py``.
"""

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from energy_callbacks import EnergyMeter
from energy_callbacks.cli import main
from energy_callbacks.core.errors import ConsentError
from energy_callbacks.powercap import PowerLimitOptimizer
from energy_callbacks.powercap.actuators import choose
from energy_callbacks.powercap.safety.changed_cards import ChangedCards
from tests.fake_nvml import Constant, FakeNvml, PowerModel, Scenario, card_uuid, fixtures, h200
from tests.powercap.nvml_clock import NvmlClock, prepare

fake_nvml = fixtures.fake_nvml
Load = Callable[..., FakeNvml]


@pytest.fixture
def nvml(fake_nvml: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    """A card that this process is permitted to change."""
    card = h200(Constant(650.0), model=PowerModel(busy_w=650.0), latency={})
    nvml = fake_nvml(Scenario(cards=(card,)))
    prepare(nvml, tmp_path, monkeypatch, is_admin=True)
    monkeypatch.chdir(tmp_path)
    return nvml


def train(nvml: FakeNvml, folder: Path, **settings: Any) -> None:
    """A training that is long enough for several windows."""
    clock = NvmlClock(nvml)
    meter = EnergyMeter(clock=clock, devices=[0], report_dir=folder, **settings)
    with meter, meter.phase("train"):
        for _ in range(300):
            clock.advance(0.1)
            meter.step()


@pytest.mark.parametrize(
    "power_limit",
    [
        PowerLimitOptimizer(),
        PowerLimitOptimizer(objective="min_energy"),
        PowerLimitOptimizer(eta=0.5),
        PowerLimitOptimizer(cap_w=400.0, knob="clock"),
        PowerLimitOptimizer(cap_w=400.0, knob="duty"),
        PowerLimitOptimizer(actuator="nvml"),
        PowerLimitOptimizer(actuator="dry-run", allow_changes=True),
        {"max_slowdown": 0.1},
    ],
    ids=str,
)
def test_a_meter_calls_no_setter(nvml: FakeNvml, tmp_path: Path, power_limit: Any) -> None:
    """Each objective and knob; a dry run writes nothing with consent, either."""
    train(nvml, tmp_path / "run", power_limit=power_limit)
    assert nvml.setter_calls() == []


def test_settings_from_the_environment_call_no_setter(
    nvml: FakeNvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variable names an objective, but gives no consent."""
    monkeypatch.setenv("ENERGY_CALLBACKS_POWER_LIMIT", "max_slowdown=0.1")
    train(nvml, tmp_path / "run")
    assert nvml.setter_calls() == []


@pytest.mark.parametrize(
    "words",
    [
        ["powercap", "status"],
        ["powercap", "status", "--json"],
        ["powercap", "set", "--limit-w", "300"],
        ["powercap", "set", "--clock-mhz", "1200"],
        ["powercap", "restore"],
        ["powercap", "sweep", "--limits", "300,400", "--", sys.executable, "-c", ""],
        ["doctor"],
    ],
    ids=" ".join,
)
def test_a_command_calls_no_setter(nvml: FakeNvml, words: list[str]) -> None:
    """Without ``--yes``, also if it ends with an error."""
    with contextlib.suppress(SystemExit):
        main(words)
    assert nvml.setter_calls() == []


def test_the_only_writer_refuses(nvml: FakeNvml) -> None:
    """``ChangedCards`` raises before anything is written."""
    actuator = choose.choose([card_uuid(0)], "limit")
    with pytest.raises(ConsentError, match="allow_changes=True"):
        ChangedCards(actuator, [card_uuid(0)], allow_changes=False)
    assert nvml.setter_calls() == []


def test_with_consent_the_same_training_calls_setters(nvml: FakeNvml, tmp_path: Path) -> None:
    """The tests above can fail."""
    train(nvml, tmp_path / "run", power_limit=PowerLimitOptimizer(allow_changes=True))
    assert nvml.setter_calls()
