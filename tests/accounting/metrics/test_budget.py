"""Budgets of a run, over all its attempts."""

import logging
from pathlib import Path

import pytest

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.accounting.journal.launch import TrainingProcess
from energy_callbacks.accounting.metrics.budget import Budget, Used
from energy_callbacks.accounting.metrics.budget_allreduce import BudgetAllreduce
from energy_callbacks.testing import FakeClock, ScriptedSource

POWER_W = 360.0  # 0.1 Wh a second
USED = Used(energy_j=3600.0, power_w=POWER_W, seen_s=100.0)


@pytest.fixture
def clock() -> FakeClock:
    """Virtual time."""
    return FakeClock()


def budget(max_energy_wh: float | None = None, max_emissions_g: float | None = None) -> Budget:
    """A budget at an unknown place, with at most 2 kg per kWh."""
    return Budget(
        EnergyConfig(max_energy_wh=max_energy_wh, max_emissions_g=max_emissions_g),
        lambda energy: (None, 0.0, 2.0 * (energy.energy_j or 0.0) / 3.6e6),
    )


def meter(folder: Path, clock: FakeClock, **limits: float) -> EnergyMeter:
    """A meter on a card that uses 0.1 Wh per second."""
    source = ScriptedSource(clock, power_w=lambda _: POWER_W, energy_j=lambda t_s: POWER_W * t_s)
    config = EnergyConfig(report_dir=folder, country="DEU", **limits)
    return EnergyMeter(config=config, sources=[source], clock=clock)


def steps_until_over(meter: EnergyMeter, clock: FakeClock, most: int = 200) -> int:
    """Number of steps of a second until the budget is used up."""
    with meter, meter.phase("train"):
        for step in range(1, most + 1):
            clock.advance(1.0)
            meter.step(samples=1)
            if meter.is_over_budget():
                return step
    return most + 1


def test_what_was_not_seen_yet_goes_on_as_before() -> None:
    """1 Wh five seconds ago is 1.5 Wh now; the extrapolation is limited to ten seconds."""
    assert budget(max_energy_wh=3.0).share(USED, 105.0) == pytest.approx(0.5)
    assert budget(max_energy_wh=1.0).share(USED, 1e6) == pytest.approx(2.0)


def test_the_tighter_limit_counts() -> None:
    """1 Wh and at most 2 g: for an unknown place the upper end of the emissions counts."""
    assert budget(10.0, 4.0).share(USED, 100.0) == pytest.approx(0.5)
    assert budget(1.0, 4.0).share(USED, 100.0) == pytest.approx(1.0)
    assert budget().share(USED, 100.0) == 0.0


@pytest.mark.parametrize("name", ["max_energy_wh", "max_emissions_g"])
def test_a_limit_is_a_positive_number(name: str) -> None:
    """Zero, negative numbers and text are refused with the name and the value."""
    for value in (0, -1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match=rf"{name} must be positive, got {value}"):
            EnergyConfig(**{name: value})
    with pytest.raises(TypeError, match=f"{name} must be a number, got 'much'"):
        EnergyConfig(**{name: "much"})


def test_a_run_is_over_at_the_step_that_uses_it_up(
    tmp_path: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """2 Wh at 0.1 Wh per step are 20 steps, one log line, and one warning in the report."""
    measured = meter(tmp_path, clock, max_energy_wh=2.0)
    assert steps_until_over(measured, clock) == 20
    [line] = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert "The budget is used up (max_energy_wh=2): the training was asked" in line.message
    assert [w.code for w in measured.report().warnings].count("budget_used_up") == 1


def test_earlier_attempts_have_used_their_part(tmp_path: Path, clock: FakeClock) -> None:
    """After 15 steps and a restart, 5 steps remain."""
    with (first := meter(tmp_path / "a", clock)), first.phase("train"):
        clock.advance(15.0)
    again = meter(tmp_path / "a", clock, max_energy_wh=2.0)
    again.start(state=first.state())
    assert steps_until_over(again, clock) == 5


def test_without_a_limit_nobody_is_asked(tmp_path: Path, clock: FakeClock) -> None:
    """Without a budget there is no collective in each step."""

    def add(share: float) -> float:
        raise AssertionError(share)

    with (measured := meter(tmp_path, clock)):
        clock.advance(5.0)
        assert not measured.is_over_budget(add)


def test_processes_stop_together(tmp_path: Path, clock: FakeClock) -> None:
    """The sum counts; a process that is not the first of its host adds 0."""
    measured = meter(tmp_path, clock, max_energy_wh=2.0)
    measured._start(process=TrainingProcess(rank=1, local_rank=1, world_size=2))
    clock.advance(100.0)
    given: list[float] = []

    def add(share: float) -> float:
        given.append(share)
        return 1.0

    assert measured.is_over_budget(add)
    assert given == [0.0]
    measured.stop()


def test_a_process_that_measures_no_more_still_votes(tmp_path: Path, clock: FakeClock) -> None:
    """Otherwise the other processes would wait for it."""
    measured = meter(tmp_path, clock, max_energy_wh=2.0)
    measured.start()
    measured._abandon("a bug")
    assert measured.is_over_budget(lambda share: share + 1.5)
    assert not measured.is_over_budget(lambda share: share + 0.5)


def test_a_vote_that_fails_is_not_asked_again(
    tmp_path: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A broken network causes one warning, not one per step, and measuring continues."""

    def add(share: float) -> float:
        raise RuntimeError("connection closed by peer")

    measured = meter(tmp_path, clock, max_energy_wh=2.0)
    measured.start()
    assert not measured.is_over_budget(add)
    assert not measured.is_over_budget(add)
    assert measured.is_running
    assert sum(record.levelno == logging.WARNING for record in caplog.records) == 1


def test_a_bug_of_ours_still_votes(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The share of a process that fails is 0, so that the others do not wait for it."""
    measured = meter(tmp_path, clock, max_energy_wh=2.0)
    measured.start()
    monkeypatch.setattr(Budget, "share", lambda *_: 1 / 0)
    clock.advance(5.0)
    given: list[float] = []
    measured.is_over_budget(lambda share: given.append(share) or 0.0)
    measured.is_over_budget(lambda share: given.append(share) or 0.0)
    assert given == [0.0, 0.0]


def test_processes_that_cannot_vote_do_not_stop(
    tmp_path: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Several processes would stop at different steps; a single process decides alone."""
    measured = meter(tmp_path, clock, max_energy_wh=0.1)
    measured._start(process=TrainingProcess(world_size=2, local_world_size=2))
    clock.advance(60.0)
    assert not measured.is_over_budget()
    assert "does not connect the processes" in caplog.text
    assert BudgetAllreduce()(0.5) == 0.5
