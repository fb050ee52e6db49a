"""The contract: the power limit is optimised with consent only, and the training is as without."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.powercap import PowerLimitOptimizer
from energy_callbacks.report import build
from energy_callbacks.report.model.power_limit import PowerLimitSearch
from tests.fake_nvml import Constant, FakeNvml, PowerModel, Scenario, Settings, h200
from tests.integrations.contract.lab import Bench, Plan, Training
from tests.powercap.nvml_clock import NvmlClock, prepare

# Steps of 0.4 s or more, so that few of them fill a window.
MODEL = PowerModel(busy_w=650.0, step_s=0.4, memory_time_ratio=1.1)
FOUND_W = 700.0
# Enough steps for the search and two windows at the chosen limit.
PLAN = Plan(epochs=3, samples=200, validation_samples=8, step_s=0.001)
# Enough steps for the first changes of a search.
SHORT = replace(PLAN, epochs=2, samples=80)

Load = Callable[..., FakeNvml]


class Machine:
    """A bench with one simulated card, whose steps depend on its power limit."""

    def __init__(
        self, bench: Bench, load: Load, patch: pytest.MonkeyPatch, *, is_admin: bool
    ) -> None:
        card = h200(Constant(MODEL.busy_w))
        # Calls take no time, because the clock of the training would not see it.
        self.card = replace(card, model=MODEL, can_write=is_admin, latency={})
        self.nvml = load(Scenario(cards=(self.card,)))
        prepare(self.nvml, bench.folder, patch, is_admin=is_admin)
        self.clock = NvmlClock(self.nvml)
        self.plain = bench
        self.bench = Bench(bench.lab, bench.folder, self.clock)

    def fit(self, plan: Plan, **settings: Any) -> Training:
        """Train with an optimizer."""
        optimizer = PowerLimitOptimizer(window_steps=8, **settings)
        config = EnergyConfig(devices=[0], power_limit=optimizer, country="DEU")
        ours = self.bench.lab.callback(meter=EnergyMeter(clock=self.clock, config=config))
        plan = replace(plan, before_batch=lambda _: self.clock.advance(self.nvml.step_s()))
        return self.bench.fit(plan, ours, folder="ours")

    def step_j(self, limit_w: float) -> float:
        """The true energy of a step."""
        settings = Settings(limit_w=limit_w)
        offset_w, factor = self.card.scale(settings)
        power_w = offset_w + factor * MODEL.busy_w
        return power_w * (self.card.step_s(settings) + PLAN.step_s)

    def assert_the_same_as_without_us(self, training: Training, plan: Plan) -> None:
        """Assert that all weights and losses are bit-identical to those without our callback."""
        plain, ours = self.plain.without_us(plan), training.rows()
        assert training.weights() == plain.weights()
        for tag, rows in plain.rows().items():
            assert ours[tag] == rows, tag

    @property
    def run_folder(self) -> Path:
        """The folder with the journal."""
        (journal,) = (self.bench.folder / "ours").rglob("attempts/1/*.jsonl")
        return journal.parents[2]

    def search(self) -> PowerLimitSearch | None:
        """The search in the report."""
        profile = build(self.run_folder).profile
        return None if profile is None else profile.power_limit


class PowerContract:
    """The power limit is changed with consent only, and restored; the training does not change."""

    def test_the_best_power_limit_is_found_and_restored(
        self, bench: Bench, fake_nvml: Load, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Weights and losses are bit-identical, and the saving in the report is the true one."""
        machine = Machine(bench, fake_nvml, monkeypatch, is_admin=True)
        training = machine.fit(PLAN, max_slowdown=0.05, allow_changes=True)
        assert machine.nvml.setter_calls()[-1].value == FOUND_W
        search = machine.search()
        assert search is not None
        assert search.chosen < search.found == FOUND_W
        truth = 1.0 - machine.step_j(search.chosen) / machine.step_j(FOUND_W)
        assert search.is_measured
        assert search.saving.low <= truth <= search.saving.high
        assert search.saving.high - search.saving.low < 0.1
        machine.assert_the_same_as_without_us(training, PLAN)

    def test_without_the_permission_nothing_changes(
        self,
        bench: Bench,
        fake_nvml: Load,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """The message says what each actuator needs; weights and losses are bit-identical."""
        machine = Machine(bench, fake_nvml, monkeypatch, is_admin=False)
        training = machine.fit(SHORT, allow_changes=True)
        assert machine.nvml.setter_calls() == []
        assert "CAP_SYS_ADMIN" in caplog.text
        assert "power_limit" in {one.code for one in build(machine.run_folder).warnings}
        assert machine.search() is None
        machine.assert_the_same_as_without_us(training, SHORT)

    def test_without_consent_no_setter_is_called(
        self,
        bench: Bench,
        fake_nvml: Load,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """A message says what would be done."""
        machine = Machine(bench, fake_nvml, monkeypatch, is_admin=True)
        machine.fit(SHORT, max_slowdown=0.05)
        assert machine.nvml.setter_calls() == []
        assert "from 200 to 700 W (now 700 W)" in caplog.text
