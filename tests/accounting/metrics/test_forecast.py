"""Forecasts from the first epoch are correct within their error."""

import itertools
import json
import logging
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.accounting.journal import journal
from energy_callbacks.accounting.journal.launch import TrainingProcess
from energy_callbacks.accounting.metrics.forecast import Forecaster
from energy_callbacks.accounting.metrics.step_counts import StepCounts
from energy_callbacks.report import EnergyReport
from energy_callbacks.testing import FakeClock, ScriptedSource

EPOCHS = 20
STEPS = 120


@pytest.fixture
def clock() -> FakeClock:
    """Virtual time."""
    return FakeClock()


@dataclass
class Card:
    """A card with an exact counter, whose power is set by the test."""

    clock: FakeClock
    power_w: float = 100.0
    energy_j: float = 0.0
    since_s: float = 0.0

    def set(self, power_w: float) -> None:
        """Set the power from now on."""
        self.energy_j, self.since_s = (
            self.counted(self.clock.monotonic_s()),
            self.clock.monotonic_s(),
        )
        self.power_w = power_w

    def counted(self, t_s: float) -> float:
        """The value of the counter."""
        return self.energy_j + self.power_w * (t_s - self.since_s)


def measured(folder: Path, clock: FakeClock, **settings: str) -> tuple[EnergyMeter, Card]:
    """A meter on a ``Card``."""
    card = Card(clock)
    source = ScriptedSource(
        clock, power_w=lambda _: card.power_w, energy_j=card.counted, kind=None, interval_s=0.5
    )
    config = EnergyConfig(report_dir=folder, **settings)
    return EnergyMeter(config=config, sources=[source], clock=clock), card


def train(meter: EnergyMeter, card: Card, seed: int = 0, *, epochs: int = EPOCHS) -> EnergyReport:
    """Steps of about 0.1 s and 300 W, slower at first, and a validation per epoch."""
    rng, clock = np.random.default_rng(seed), card.clock
    load = 0.0
    number = itertools.count()
    with meter, meter.phase("train"):
        meter.plan(epochs * STEPS)
        for epoch in range(epochs):
            for _ in range(STEPS):
                load = 0.9 * load + rng.normal(0.0, 6.0)
                warm_w = 9.0 * (1.0 - np.exp(-clock.monotonic_s() / 60.0))
                card.set(300.0 + load + warm_w)
                slow = 3.0 if next(number) < 5 else 1.0
                clock.advance(0.1 * slow * rng.lognormal(0.0, 0.2))
                meter.step(samples=4)
            card.set(180.0)
            with meter.phase("validation"):
                clock.advance(1.5)
            meter.epoch(epoch)
            meter.log(epoch)
    return meter.report()


def test_runs_end_inside(tmp_path: Path) -> None:
    """After epoch 1 of 20: energy and time are within the stated error."""
    assert forecasts_that_hold(tmp_path, range(2)) == 2


@pytest.mark.slow(reason="ten trainings of 20 epochs in virtual time: how often intervals hold")
def test_nine_of_ten_runs_end_inside(tmp_path: Path) -> None:
    """Nine of ten seeds are within the stated error."""
    assert forecasts_that_hold(tmp_path, range(10)) >= 9


def forecasts_that_hold(folder: Path, seeds: range) -> int:
    """Number of trainings whose energy and time are within the stated error."""
    inside, narrow = [], []
    for seed in seeds:
        clock = FakeClock()
        report = train(*measured(folder / str(seed), clock), seed)
        found = report.forecast
        assert found is not None
        assert (found.after, found.planned_steps) == ("the first epoch", EPOCHS * STEPS)
        assert STEPS < found.steps < 2 * STEPS
        energy_j = report.energy.total.energy_j
        inside.append(
            abs(found.energy_j - energy_j) < found.energy_error_j
            and abs(found.duration_s - report.run.duration_s) < found.duration_error_s
        )
        narrow.append(found.energy_error_j / energy_j)
    assert np.median(narrow) < 0.15
    return sum(inside)


def test_it_is_told_once_and_kept(
    tmp_path: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged once, and is in the journal and the report."""
    meter, card = measured(tmp_path, clock, country="DEU")
    with caplog.at_level(logging.INFO):
        report = train(meter, card)
    lines = [r.message for r in caplog.records if r.message.startswith("forecast after")]
    assert len(lines) == 1
    assert lines[0].startswith("forecast after the first epoch: ")
    events = [
        record for record in journal.read(journal.find(tmp_path)[0])
        if record.get("kind") == "forecast"
    ]  # fmt: skip
    assert len(events) == 1
    assert report.forecast.emissions_low_kg < report.forecast.emissions_kg
    assert report.forecast.emissions_kg < report.forecast.emissions_high_kg
    assert "Forecast after the first epoch" in str(report)
    meter.save_report()
    assert json.loads((tmp_path / "energy_report.json").read_text())["forecast"]


def test_a_long_epoch_is_not_waited_for(tmp_path: Path, clock: FakeClock) -> None:
    """For one long epoch a tenth of its steps is enough, if that is ten seconds."""
    meter, _ = measured(tmp_path, clock)
    with meter, meter.phase("train"):
        meter.plan(2000)
        for _ in range(2000):
            clock.advance(0.1)
            meter.step()
        meter.epoch(0)
    found = meter.report().forecast
    assert found.after == "10% of the steps"
    assert found.energy_j == pytest.approx(meter.report().energy.total.energy_j, rel=1e-3)


def test_a_drift_continues(tmp_path: Path, clock: FakeClock) -> None:
    """The energy per step rises by 50 % over the run; its mean after a tenth is 18 % too low."""
    meter, card = measured(tmp_path, clock)
    with meter, meter.phase("train"):
        meter.plan(2000)
        for step in range(2000):
            card.set(300.0 * (1.0 + 0.5 * step / 2000))
            clock.advance(0.1)
            meter.step()
    found = meter.report().forecast
    energy_j = meter.report().energy.total.energy_j
    assert found is not None
    assert energy_j is not None
    assert found.energy_j == pytest.approx(energy_j, rel=0.02)
    assert found.energy_error_j < 0.25 * energy_j


@dataclass
class Interrupted:
    """Step counts; an epoch ends when they are read for the second time."""

    forecaster: Forecaster
    t_s: float = 2.0
    reads: int = 0

    @property
    def steps(self) -> int:
        """The number of steps."""
        self.reads += 1
        if self.reads == 2:
            self.forecaster.end_epoch(self.t_s)
        return 2


def test_an_epoch_ends_during_an_update() -> None:
    """``end_epoch`` runs on the training thread while ``update`` runs on the journal's thread."""
    log = SimpleNamespace(tally=StepCounts(t_s=1.0, steps=1))
    forecaster = Forecaster(SimpleNamespace(recorder=SimpleNamespace(steps=log)), 1.0)
    forecaster.resume()
    forecaster.update()
    log.tally = Interrupted(forecaster)
    forecaster.update()
    forecaster.update()
    assert forecaster.news is None


def test_an_epoch_tells_more_than_its_steps(tmp_path: Path, clock: FakeClock) -> None:
    """A tenth of the steps has no validation, so there is a new forecast after the epoch."""
    meter, card = measured(tmp_path, clock)
    report = train(meter, card, epochs=5)
    assert report.forecast.after == "the first epoch"
    made = [
        record["after"] for record in journal.read(journal.find(tmp_path)[0])
        if record.get("kind") == "forecast"
    ]  # fmt: skip
    assert len(made) == 2
    assert made[0].endswith("% of the steps")


def test_short_epochs_are_taken_together(tmp_path: Path, clock: FakeClock) -> None:
    """With epochs of three seconds there is a forecast after several of them."""
    meter, _ = measured(tmp_path, clock)
    with meter, meter.phase("train"):
        meter.plan(400)
        for epoch in range(40):
            for _ in range(10):
                clock.advance(0.3)
                meter.step()
            meter.epoch(epoch)
    found = meter.report().forecast
    assert found.after in ("3 epochs", "4 epochs")
    assert found.energy_j == pytest.approx(meter.report().energy.total.energy_j, rel=1e-3)


def test_without_a_plan_there_is_none(tmp_path: Path, clock: FakeClock) -> None:
    """Without a planned number of steps there is no forecast."""
    meter, _ = measured(tmp_path, clock)
    with meter, meter.phase("train"):
        for step in range(300):
            clock.advance(0.1)
            meter.step()
            if step % 150 == 149:
                meter.epoch(step)
    assert meter.report().forecast is None


def test_all_hosts_and_earlier_attempts_are_in_it(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four ranks on two hosts use twice as much as one host; earlier attempts are added."""
    # The other ranks are not there.
    monkeypatch.setattr("energy_callbacks.report_process.meter_reports._RANKS_S", 0.0)
    first, card = measured(tmp_path, clock)
    used_j = train(first, card, epochs=2).energy.total.energy_j
    again, card = measured(tmp_path, clock)
    again._start(state=first.state(), process=TrainingProcess(world_size=4, local_world_size=2))
    found = train(again, card, epochs=5).forecast
    own_j = again.report().energy.total.energy_j - used_j
    assert found.energy_j == pytest.approx(2 * (used_j + own_j), rel=0.1)


def test_the_rest_of_an_epoch_is_no_epoch(tmp_path: Path, clock: FakeClock) -> None:
    """After a resume near the end of an epoch, the rest of that epoch is not a sample."""
    meter, card = measured(tmp_path, clock)
    with meter, meter.phase("train"):
        meter.plan(1320)
        meter.resumed(1080)
        for epoch, steps in enumerate([120, 600, 600]):
            for _ in range(steps):
                card.set(300.0)
                clock.advance(0.1)
                meter.step()
            card.set(180.0)
            with meter.phase("validation"):
                clock.advance(20.0)
            meter.epoch(epoch)
    found, energy_j = meter.report().forecast, meter.report().energy.total.energy_j
    assert found.energy_j == pytest.approx(energy_j, rel=0.1)
