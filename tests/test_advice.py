"""Advice, end to end: trainings with one fault each, measured on a card of known power.

The report gives the advice for that fault only; a training without a fault gets no advice.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.accounting.journal.launch import TrainingProcess
from energy_callbacks.report import EnergyReport
from energy_callbacks.tuning import tune_batch_size
from tests.charts import no_charts  # noqa: F401 - a fixture of all tests here
from tests.fake_nvml import Constant, Scenario, fixtures, h200
from tests.fake_nvml.test_fake_card import CardClock

fake_nvml = fixtures.fake_nvml
POWER_W = 400.0
STEP_S, STEPS = 0.1, 600


class BusyClock(CardClock):
    """A fake clock whose ``sleep`` lets the sensors run."""

    def sleep(self, duration_s: float) -> None:
        """See ``FakeClock.advance``."""
        self.advance(duration_s)


class Bench:
    """A training of a minute in virtual time, and ways to introduce a fault."""

    def __init__(self, clock: CardClock, folder: Path) -> None:
        self.clock = clock
        self.folder = folder
        self.meter = EnergyMeter(config=EnergyConfig(report_dir=folder, devices=[0]), clock=clock)

    def train(self, *, wait_s: float = 0.001, samples: int = 64, step_s: float = STEP_S) -> None:
        """Take optimizer steps, each after a wait for its batch."""
        with self.meter.phase("train"):
            for _ in range(round(STEPS * STEP_S / step_s)):
                self.clock.advance(wait_s)
                self.meter.data_ready()
                self.clock.advance(step_s - wait_s)
                self.meter.step(samples=samples)
                self.meter.batch_done()

    def step(self, size: int) -> None:
        """Return the duration of a step: 20 ms plus 1 ms per sample."""
        self.clock.advance(0.02 + 0.001 * size)
        if size > 256:
            raise RuntimeError("CUDA out of memory")


@pytest.fixture
def bench(fake_nvml, tmp_path: Path) -> Callable[..., Bench]:
    """Return a function that makes a bench with given differences from an H200 at 400 W."""

    def make(**card: float) -> Bench:
        nvml = fake_nvml(Scenario(cards=(h200(Constant(POWER_W), **card),)))
        return Bench(BusyClock(nvml.time), tmp_path / "run")

    return make


def told(report: EnergyReport) -> list[str]:
    """Return the codes of the advice."""
    return [one.code for one in report.advice]


def test_without_a_fault(bench: Callable[..., Bench]) -> None:
    """Waits of 1 %, a start of some seconds and improving validations give no advice."""
    one = bench()
    with one.meter:
        one.clock.advance(3.0)
        one.train()
        for epoch in range(8):
            with one.meter.phase("validation"):
                one.clock.advance(1.0)
            one.meter.record_metrics({"val_loss": 1.0 / (epoch + 1)}, epoch=epoch)
    assert told(one.meter.report()) == []


def test_waiting_for_data(bench: Callable[..., Bench]) -> None:
    """Waiting for half of each step can save at most half of the energy."""
    one = bench()
    with one.meter:
        one.train(wait_s=STEP_S / 2)
    report = one.meter.report()
    assert told(report) == ["data_wait"]
    gpu_j = POWER_W * STEPS * STEP_S / 2
    assert report.advice[0].saves_j is not None
    assert gpu_j * 0.9 < report.advice[0].saves_j < gpu_j * 1.5  # the host's energy comes on top


def test_idle_time(bench: Callable[..., Bench]) -> None:
    """Half a minute without work after the training is reported."""
    one = bench()
    with one.meter:
        one.train()
        one.clock.advance(30.0)
    assert told(one.meter.report()) == ["idle"]


@pytest.mark.parametrize(("size", "codes"), [(8, ["batch_size"]), (240, [])])
def test_a_batch_below_the_measured_knee(
    bench: Callable[..., Bench], size: int, codes: list[str]
) -> None:
    """A search measured the best size; the training uses another one."""
    one = bench()
    with one.meter:
        result = tune_batch_size(one.step, max_size=256, powers_of_two=True, meter=one.meter)
        assert result.size == 256
        one.train(samples=size, step_s=0.02 + 0.001 * size)
    assert told(one.meter.report()) == codes


@pytest.mark.parametrize("share", ["power_throttle", "thermal_throttle"])
def test_throttling(bench: Callable[..., Bench], share: str) -> None:
    """The card's clocks are reduced for 40 % of the time."""
    one = bench(**{share: 0.4})
    with one.meter:
        one.train()
    report = one.meter.report()
    assert told(report) == ["throttling"]
    assert "of the time" in report.advice[0].message


def test_energy_after_the_best_validation(bench: Callable[..., Bench]) -> None:
    """The best validation is after a third of the run: two thirds of the energy are wasted."""
    one = bench()
    with one.meter, one.meter.phase("train"):
        for epoch in range(12):
            for _ in range(50):
                one.clock.advance(STEP_S)
                one.meter.step(samples=64)
            one.meter.record_metrics({"val_loss": 1.0 + abs(epoch - 3) / 10}, epoch=epoch)
    report = one.meter.report()
    assert told(report) == ["late_stop"]
    total_j = report.energy.total.energy_j
    assert total_j is not None
    assert report.advice[0].saves_j == pytest.approx(total_j * 8 / 12, rel=0.05)


@pytest.mark.parametrize(("wait_s", "codes"), [(0.03, ["straggler"]), (0.001, [])])
def test_a_rank_that_holds_up_the_other(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch, wait_s: float, codes: list[str]
) -> None:
    """One rank waits for its data, the other rank waits for the first."""
    monkeypatch.setenv("MASTER_PORT", "29500")
    first = bench()
    second = Bench(first.clock, first.folder)
    for rank, (one, wait) in enumerate(((first, 0.001), (second, wait_s))):
        process = TrainingProcess(rank=rank, local_rank=rank, world_size=2, local_world_size=2)
        one.meter._start(process=process)
        one.train(wait_s=wait)
        one.meter.stop()
    assert told(first.meter.report()) == codes
