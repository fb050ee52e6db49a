"""Totals continue after a restart, in whatever state the earlier attempts are."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.accounting.journal import journal, previous_attempts
from energy_callbacks.accounting.journal.launch import TrainingProcess
from energy_callbacks.core import formatting
from energy_callbacks.core.records import Device
from energy_callbacks.report import EnergyReport, build
from energy_callbacks.testing import FakeClock, ScriptedSource

POWER_W = 200.0
ALONE = TrainingProcess()
MEMORY = Device(key="hbm0", kind="gpu", scope="gpu", name="part of the card", parent="gpu0")


@pytest.fixture
def clock() -> FakeClock:
    """Virtual time."""
    return FakeClock()


def meter_in(folder: Path, clock: FakeClock, *, is_nested: bool = False) -> EnergyMeter:
    """A meter on a card of 200 W, optionally with a sensor for a part of it."""
    sources = [card(clock, POWER_W)]
    if is_nested:
        sources.append(card(clock, 50.0, device=MEMORY))
    return EnergyMeter(config=EnergyConfig(report_dir=folder), sources=sources, clock=clock)


def card(clock: FakeClock, power_w: float, **settings: Any) -> ScriptedSource:
    """A device at constant power."""
    return ScriptedSource(
        clock, power_w=lambda _: power_w, energy_j=lambda t_s: power_w * t_s, **settings
    )


def trained(meter: EnergyMeter, clock: FakeClock, seconds: int, **start: Any) -> dict[str, Any]:
    """Train for this time and stop; returns the state for a checkpoint at the end."""
    meter._start(**start)
    with meter.phase("train"):
        for _ in range(seconds):
            clock.advance(1.0)
            meter.step(samples=4)
    state = meter.state()
    meter.stop()
    return state


def gpu_j(found: EnergyReport | previous_attempts.PreviousAttempts) -> float:
    """Joules of the GPU."""
    if isinstance(found, previous_attempts.PreviousAttempts):
        return found.of("gpu")
    assert found.energy.gpu.energy_j is not None
    return found.energy.gpu.energy_j


def curve_j(meter: EnergyMeter) -> float:
    """The newest value of the user's curve of energy."""
    return meter.scalars()["energy/gpu_wh"] * 3600.0


def look(
    folder: Path, state: dict[str, Any], number: int = 9, **process: int
) -> previous_attempts.PreviousAttempts:
    """The energy used before attempt ``number``."""
    return previous_attempts.usage_before(
        folder, number, state["run_id"], TrainingProcess(**process), state
    )


def test_a_resume_in_another_folder_goes_on(tmp_path: Path, clock: FakeClock) -> None:
    """Lightning uses a new folder: the curve continues, and the report has all attempts."""
    state = trained(meter_in(tmp_path / "a", clock), clock, 20)
    again = meter_in(tmp_path / "b", clock)
    trained(again, clock, 5, state=state)
    assert curve_j(again) == pytest.approx(25 * POWER_W)
    report = again.report()
    assert gpu_j(report) == pytest.approx(25 * POWER_W)
    assert [(attempt.attempt, attempt.steps) for attempt in report.attempts] == [(1, 20), (2, 5)]
    assert report.attempts[1].offset_s == pytest.approx(20.0)
    assert not any(one.code == "earlier_attempts_lost" for one in report.warnings)


def test_folders_are_followed_back_to_the_first(tmp_path: Path, clock: FakeClock) -> None:
    """With three folders, each attempt counts once, also after the folders were moved."""
    state = trained(meter_in(tmp_path / "runs" / "a", clock), clock, 20)
    second = meter_in(tmp_path / "runs" / "b", clock)
    trained(second, clock, 5, state=state)
    state = trained(second, clock, 3)
    third = meter_in(tmp_path / "runs" / "c", clock)
    trained(third, clock, 2, state=state)
    assert curve_j(third) == pytest.approx(30 * POWER_W)
    (tmp_path / "runs").rename(tmp_path / "moved")
    report = build(tmp_path / "moved" / "c")
    assert [attempt.steps for attempt in report.attempts] == [20, 5, 3, 2]
    assert gpu_j(report) == pytest.approx(30 * POWER_W)


def test_what_came_after_the_checkpoint_was_used_too(tmp_path: Path, clock: FakeClock) -> None:
    """With a checkpoint after 20 s and a crash after 30 s, 30 s of energy count."""
    meter = meter_in(tmp_path / "a", clock)
    state = trained(meter, clock, 20)
    trained(meter, clock, 10)
    assert gpu_j(look(tmp_path / "b", state)) == pytest.approx(30 * POWER_W)


def test_without_the_journals_the_checkpoint_tells(tmp_path: Path, clock: FakeClock) -> None:
    """On another machine the curve continues, and the report says what is missing."""
    state = trained(meter_in(tmp_path / "a", clock), clock, 20)
    shutil.rmtree(tmp_path / "a")
    again = meter_in(tmp_path / "b", clock)
    trained(again, clock, 5, state=state)
    assert curve_j(again) == pytest.approx(25 * POWER_W, abs=POWER_W)
    report = again.report()
    assert gpu_j(report) == pytest.approx(5 * POWER_W)
    [warning] = [one for one in report.warnings if one.code == "earlier_attempts_lost"]
    assert formatting.energy(state["energy_j"]["gpu"]) in warning.message


def test_an_attempt_that_was_killed_counts(tmp_path: Path, clock: FakeClock) -> None:
    """Without totals and with a partial last line, its newest row counts."""
    state = trained(meter_in(tmp_path, clock), clock, 20)
    [path] = journal.find(tmp_path)
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    rows = [number for number, line in enumerate(lines) if '"series"' in line]
    path.write_text("".join(lines[: rows[-1]]) + lines[rows[-1]][:40], encoding="utf-8")
    assert gpu_j(look(tmp_path, state)) == pytest.approx(20 * POWER_W, abs=2 * POWER_W)
    assert gpu_j(look(tmp_path, state)) == pytest.approx(gpu_j(build(tmp_path)))


def test_other_runs_and_later_attempts_do_not_count(tmp_path: Path, clock: FakeClock) -> None:
    """A folder may contain more than the earlier attempts of this run."""
    trained(meter_in(tmp_path, clock), clock, 20)
    state = trained(meter_in(tmp_path, clock), clock, 5)
    del state["energy_j"]
    assert gpu_j(look(tmp_path, state, number=2)) == 0.0
    assert gpu_j(look(tmp_path, state, number=3)) == pytest.approx(5 * POWER_W)


def test_a_part_of_a_device_is_not_added_to_it(tmp_path: Path, clock: FakeClock) -> None:
    """The energy of a card contains that of its memory."""
    state = trained(meter_in(tmp_path, clock, is_nested=True), clock, 20)
    assert gpu_j(look(tmp_path, state)) == pytest.approx(20 * POWER_W)


def test_each_host_counts_its_own(tmp_path: Path, clock: FakeClock) -> None:
    """After two hosts of one rank each, a single host counts for both."""
    two = replace(ALONE, world_size=2)
    state = trained(meter_in(tmp_path, clock), clock, 20, process=two)
    trained(meter_in(tmp_path, clock), clock, 10, process=replace(two, rank=1), state=state)
    assert gpu_j(look(tmp_path, state, rank=0, world_size=2)) == pytest.approx(20 * POWER_W)
    assert gpu_j(look(tmp_path, state, rank=1, world_size=2)) == pytest.approx(10 * POWER_W)
    assert gpu_j(look(tmp_path, state, rank=0, world_size=1)) == pytest.approx(30 * POWER_W)
    second = look(tmp_path, state, rank=1, local_rank=1, world_size=2)
    assert second == previous_attempts.PreviousAttempts()


def test_a_state_of_nothing_is_a_new_run(tmp_path: Path, clock: FakeClock) -> None:
    """Also the state of older versions, which had only the run id."""
    meter = meter_in(tmp_path / "a", clock)
    assert meter.state() == {}
    trained(meter, clock, 5, state={})
    assert curve_j(meter) == pytest.approx(5 * POWER_W)
    trained(meter_in(tmp_path / "b", clock), clock, 5, state={"run_id": "abc"})
    assert build(tmp_path / "b").run.run_id == "abc"


def test_a_meter_in_another_folder_begins_a_new_run(tmp_path: Path, clock: FakeClock) -> None:
    """The folds of a cross-validation with one callback are not summed."""
    source = card(clock, POWER_W)
    meter = EnergyMeter(sources=[source], clock=clock)
    runs = set()
    for fold in ("a", "b"):
        trained(meter, clock, 5, run_folder=tmp_path / fold)
        runs.add(meter.run_id)
        assert curve_j(meter) == pytest.approx(5 * POWER_W)
    assert len(runs) == 2


def test_an_older_folder_that_cannot_be_read_costs_no_report(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If another user owns it, the report has the current attempts only."""
    state = trained(meter_in(tmp_path / "a", clock), clock, 20)
    again = meter_in(tmp_path / "b", clock)
    trained(again, clock, 5, state=state)
    header = journal.header

    def refused(path: Path) -> journal.Record:
        if path.is_relative_to(tmp_path / "a"):
            raise PermissionError(13, "Permission denied", str(path))
        return header(path)

    monkeypatch.setattr(journal, "header", refused)
    assert gpu_j(again.report()) == pytest.approx(5 * POWER_W)


def test_totals_of_attempts_with_different_sensors_add(tmp_path: Path, clock: FakeClock) -> None:
    """20 s of a machine of 500 W with a card of 200 W, then 5 s of the card alone: 11 kJ."""
    machine = Device(key="machine", kind="machine", scope="machine", name="board")
    both = [card(clock, POWER_W), card(clock, 500.0, device=machine)]
    meter = EnergyMeter(config=EnergyConfig(report_dir=tmp_path), sources=both, clock=clock)
    state = trained(meter, clock, 20)
    assert state["energy_j"]["total"] == state["energy_j"]["machine"] > state["energy_j"]["gpu"]
    again = meter_in(tmp_path, clock)
    trained(again, clock, 5, state=state)
    assert curve_j(again) == pytest.approx(5e3)
    assert again.scalars()["energy/total_wh"] * 3600.0 == pytest.approx(11e3)
    assert again.report().energy.total.energy_j == pytest.approx(11e3)


def test_checkpoints_of_older_versions_have_no_total(tmp_path: Path, clock: FakeClock) -> None:
    """It is then the sum of GPUs and host."""
    state = {"run_id": "abc", "energy_j": {"gpu": 40.0, "host": 2.0}}
    found = look(tmp_path, state)
    assert {scope: found.of(scope) for scope in ("gpu", "host", "machine", "total")} == {
        "gpu": 40.0,
        "host": 2.0,
        "machine": 0.0,
        "total": 42.0,
    }
