"""The optimizer in a training, in virtual time, with a scripted card."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.powercap.scripted import FOUND_W, ScriptedCard, card, changes, clock, loop

__all__ = ["card", "clock"]


def journal(folder: Path) -> list[dict[str, Any]]:
    """The lines of the only journal."""
    (path,) = folder.glob("attempts/1/*.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_limit_is_found_and_restored(card: ScriptedCard, tmp_path: Path) -> None:
    """The saving in the journal is the truth, and the limit found is there again at the end."""
    training = loop(card, tmp_path, max_slowdown=0.05, allow_changes=True)
    training.train(120.0)
    chosen_w = card.limit_w
    assert 100.0 < chosen_w < FOUND_W
    training.meter.stop()
    assert card.limit_w == FOUND_W
    report = training.meter.report()
    assert report.profile is not None
    found = report.profile.power_limit
    assert found is not None
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
