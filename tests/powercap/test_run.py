"""The optimizer in a training, in virtual time, with a scripted card."""

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from energy_callbacks import EnergyMeter
from energy_callbacks.core.errors import ActuatorError
from energy_callbacks.core.records import Energy
from energy_callbacks.powercap import PowerLimitOptimizer
from energy_callbacks.powercap.coordinator import Decision
from energy_callbacks.powercap.exchange import FolderExchange
from energy_callbacks.powercap.pacer import Pacer
from energy_callbacks.powercap.settings import KnobRange
from energy_callbacks.report.model.power_limit import PowerLimitSearch
from tests.powercap.scripted import FOUND_W, Loop, ScriptedCard, card, changes, clock, loop

__all__ = ["card", "clock"]

# Times since the start, s, and caps, W.
CAPS = ((0.0, 300.0), (200.0, 200.0))


def journal(folder: Path) -> list[dict[str, Any]]:
    """The lines of the only journal."""
    (path,) = folder.glob("attempts/1/*.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def result(training: Loop) -> PowerLimitSearch:
    """The search in the report."""
    profile = training.meter.report().profile
    assert profile is not None
    assert profile.power_limit is not None
    return profile.power_limit


def test_the_limit_is_found_and_restored(card: ScriptedCard, tmp_path: Path) -> None:
    """The saving in the journal is the truth, and the limit found is there again at the end."""
    training = loop(card, tmp_path, max_slowdown=0.05, allow_changes=True)
    training.train(120.0)
    chosen_w = card.limit_w
    assert 100.0 < chosen_w < FOUND_W
    training.meter.stop()
    assert card.limit_w == FOUND_W
    found = result(training)
    assert (found.found, found.chosen) == (FOUND_W, chosen_w)
    truth = 1.0 - card.step_j(chosen_w) / card.step_j(FOUND_W)
    assert found.is_measured
    assert found.saving.value == pytest.approx(truth, abs=0.002)
    assert found.saving.low <= truth <= found.saving.high
    lines = journal(tmp_path)
    assert changes(lines)[0] == ("search", FOUND_W)
    assert changes(lines)[-1] == ("restored", FOUND_W)


def test_nothing_is_written_without_consent(
    card: ScriptedCard, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A message says what would be done."""
    training = loop(card, tmp_path)
    training.train(60.0)
    training.meter.stop()
    assert card.writes == []
    assert "No setting of a GPU was changed." in caplog.text
    assert "from 100 to 400 W (now 400 W)" in caplog.text


def test_short_epochs_validation_and_checkpoints_do_not_disturb(
    card: ScriptedCard, tmp_path: Path
) -> None:
    """With epochs of seven steps, windows still end, and contain only time of training."""
    training = loop(card, tmp_path, max_slowdown=0.05, allow_changes=True)
    for number in range(150):
        training.train(6.5 * card.step_s())
        training.validate(0.5 + 0.037 * (number % 7))
    training.meter.stop()
    search = result(training)
    found = next(point for point in search.measured if point.value == FOUND_W)
    assert found.step_s.value == pytest.approx(card.step_s(FOUND_W), rel=0.01)
    truth = 1.0 - card.step_j(search.chosen) / card.step_j(FOUND_W)
    assert search.saving.low <= truth <= search.saving.high


def test_a_drift_begins_the_search_again(card: ScriptedCard, tmp_path: Path) -> None:
    """Steps of twice the length: the windows of before no longer count."""
    training = loop(card, tmp_path, max_slowdown=0.05, allow_changes=True)
    training.train(120.0)
    card.scale = 2.0
    training.train(400.0)
    training.meter.stop()
    whys = [why for why, _ in changes(journal(tmp_path))]
    first = whys.index("chosen")
    assert "search" in whys[first:]
    search = result(training)
    found = next(point for point in search.measured if point.value == FOUND_W)
    assert found.step_s.value == pytest.approx(card.step_s(FOUND_W), rel=0.01)


def test_a_change_by_another_program_ends_the_search(
    card: ScriptedCard, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its value is left as it is, with a warning in the report."""
    training = loop(card, tmp_path, max_slowdown=0.05, allow_changes=True)
    training.train(120.0)
    card.settle()
    card.limit_w = 222.0
    training.train(120.0)
    training.meter.stop()
    assert card.limit_w == 222.0
    assert "another program" in caplog.text
    assert "power_limit" in {one.code for one in training.meter.report().warnings}


def test_the_limit_is_restored_after_an_exception(card: ScriptedCard, tmp_path: Path) -> None:
    """The training fails during the search."""
    training = loop(card, tmp_path, max_slowdown=0.05, allow_changes=True)
    training.train(30.0)
    assert card.limit_w < FOUND_W
    training.meter.stop(ValueError("the loss is not finite"))
    assert card.limit_w == FOUND_W


def test_a_cap_is_kept(card: ScriptedCard, tmp_path: Path) -> None:
    """The fastest step with at most 250 W."""
    training = loop(card, tmp_path, cap_w=250.0, allow_changes=True)
    training.train(120.0)
    assert 237.0 <= card.limit_w <= 252.0
    training.meter.stop()


def test_a_schedule_changes_the_cap(card: ScriptedCard, tmp_path: Path) -> None:
    """The cap of the second row is kept from its time on."""
    caps = tmp_path / "caps.csv"
    start_s = card.clock.unix_s()
    rows = (f"{datetime.fromtimestamp(start_s + t, UTC).isoformat()},{w}" for t, w in CAPS)
    caps.write_text("\n".join(["time,cap_w", *rows]) + "\n")
    training = loop(card, tmp_path / "run", schedule=caps, allow_changes=True)
    training.train(200.0)
    assert 285.0 <= card.limit_w <= 302.0
    training.train(200.0)
    assert 190.0 <= card.limit_w <= 202.0
    training.meter.stop()
    assert card.limit_w == FOUND_W


def test_a_rank_that_waits_for_its_leader_reports_the_end(
    card: ScriptedCard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search ends before the leader of the host has set the first value."""
    for name, value in (("RANK", "1"), ("LOCAL_RANK", "1"), ("WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    exchange = FolderExchange(tmp_path / "attempts" / "1" / "power_limit")
    training = loop(card, tmp_path, allow_changes=True)
    exchange.post("decision", asdict(Decision(round=1, value=300.0, why="search")))
    training.train(60.0)
    end = Decision(round=2, value=None, why="end", message="the driver refused")
    exchange.post("decision", asdict(end))
    training.train(60.0)
    training.meter.stop()
    [warning] = [one for one in journal(tmp_path) if one.get("code") == "power_limit"]
    assert "the driver refused" in warning["message"]


def test_without_an_actuator_nothing_happens(
    card: ScriptedCard, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The reason is logged, and the training goes on."""

    def refuse(*_: Any) -> KnobRange:
        raise ActuatorError("the GPU has MIG enabled")

    card.range = refuse  # type: ignore[method-assign]
    training = loop(card, tmp_path, allow_changes=True)
    training.train(60.0)
    training.meter.stop()
    assert card.writes == []
    assert "the GPU has MIG enabled" in caplog.text
    assert training.meter.report().run.status == "finished"


def test_a_card_without_readings_is_left_alone(
    card: ScriptedCard, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No energy, no search; the limit found is there again."""
    training = loop(card, tmp_path, allow_changes=True)
    training.meter._lifecycle.newest.timeline.energy = (  # type: ignore[union-attr, method-assign]
        lambda *_: Energy(energy_j=None)
    )
    training.train(90.0)
    assert "has no readings" in caplog.text
    training.meter.stop()
    assert card.limit_w == FOUND_W


def test_duty_cycling_keeps_a_cap_without_privilege(
    card: ScriptedCard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop sleeps after each step, so that the mean power is below the cap."""
    clock = card.clock
    optimizer = PowerLimitOptimizer(knob="duty", cap_w=300.0, allow_changes=True)
    meter = EnergyMeter(
        sources=[card.source()], clock=clock, report_dir=tmp_path, power_limit=optimizer
    )
    meter.start()
    training = Loop(meter, card)
    pacer = meter._profilers.running[0]
    assert isinstance(pacer, Pacer)
    monkeypatch.setattr(clock, "sleep", clock.advance)  # sensors are read during the sleep
    training.train(150.0, sleeps=True)
    start_s, start_j = clock.monotonic_s(), card.energy_j(clock.monotonic_s())
    training.train(30.0, sleeps=True)
    mean_w = (card.energy_j(clock.monotonic_s()) - start_j) / (clock.monotonic_s() - start_s)
    assert 270.0 <= mean_w <= 306.0
    assert card.writes == []
    assert pacer.duty < 1.0
    attempt = meter._lifecycle.attempt
    assert attempt is not None
    monkeypatch.setattr(attempt.timeline, "energy", lambda *_: Energy(energy_j=None))
    training.train(300.0, sleeps=True)
    assert pacer.duty == 1.0, "an error has ended the search"
    meter.stop()
