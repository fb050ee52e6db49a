"""A plain loop on the simulated NVML library, with locked clocks and the cost of Zeus."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from energy_callbacks import EnergyMeter
from energy_callbacks.powercap import PowerLimitOptimizer
from energy_callbacks.report.model.power_limit import PowerLimitSearch
from tests.fake_nvml import Constant, FakeNvml, PowerModel, Scenario, Settings, fixtures, h200
from tests.powercap.nvml_clock import NvmlClock, prepare

fake_nvml = fixtures.fake_nvml
MODEL = PowerModel(busy_w=650.0, step_s=0.2, memory_time_ratio=1.1)


@pytest.fixture
def nvml(
    fake_nvml: Callable[..., FakeNvml], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> FakeNvml:
    """A card that this process is permitted to change."""
    card = h200(Constant(MODEL.busy_w), model=MODEL, latency={})
    nvml = fake_nvml(Scenario(cards=(card,)))
    prepare(nvml, tmp_path, monkeypatch, is_admin=True)
    return nvml


def searched(nvml: FakeNvml, folder: Path, **arguments: Any) -> PowerLimitSearch:
    """The search in the report of a training."""
    clock = NvmlClock(nvml)
    optimizer = PowerLimitOptimizer(window_steps=8, allow_changes=True, **arguments)
    meter = EnergyMeter(clock=clock, devices=[0], report_dir=folder, power_limit=optimizer)
    with meter, meter.phase("train"):
        for _ in range(450):
            clock.advance(nvml.step_s())
            meter.step()
    profile = meter.report().profile
    assert profile is not None
    assert profile.power_limit is not None
    return profile.power_limit


def step_j(nvml: FakeNvml, settings: Settings) -> float:
    """The true energy of a step."""
    card = nvml.scenario.cards[0]
    offset_w, factor = card.scale(settings)
    return (offset_w + factor * MODEL.busy_w) * card.step_s(settings)


def test_locked_clocks_are_found_and_released(nvml: FakeNvml, tmp_path: Path) -> None:
    """The saving is the true one, and clocks are as they were: not locked."""
    search = searched(nvml, tmp_path / "run", knob="clock", max_slowdown=0.05)
    calls = nvml.setter_calls()
    assert {call.call for call in calls} == {"clock"}
    assert calls[-1].value == 0.0  # the clocks are reset
    assert search.chosen < search.found == 1980.0
    found_j = step_j(nvml, Settings(limit_w=700.0))
    chosen = Settings(limit_w=700.0, clock_mhz=search.chosen)
    truth = 1.0 - step_j(nvml, chosen) / found_j
    assert search.saving.low <= truth <= search.saving.high


def test_the_cost_of_zeus_is_an_objective(nvml: FakeNvml, tmp_path: Path) -> None:
    """With more weight on the energy, the limit is lower; the limit found is restored."""
    low = searched(nvml, tmp_path / "energy", eta=1.0)
    high = searched(nvml, tmp_path / "time", eta=0.0)
    assert low.chosen < high.chosen
    assert nvml.setter_calls()[-1].value == 700.0
