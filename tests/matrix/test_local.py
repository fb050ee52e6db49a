"""Matrices on this machine with simulated jobs: order, resume and refusals."""

import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest

from energy_callbacks.matrix.engines import local
from energy_callbacks.report import load
from tests.fake_nvml import Constant, FakeNvml, Scenario, card_uuid, h200
from tests.matrix.lab import Ended, Lab
from tests.matrix.launcher import Launcher

NAMED = "{a}-{b}-{repeat}"


def test_order_results_and_a_second_call(lab: Lab, launcher: Launcher) -> None:
    """Jobs run in ABBA order into one run folder each; a second call runs nothing."""
    lab.write(repeats=2, cool_down_s=1.0, parameters={"a": ["x"], "b": ["A", "B"]})
    assert "4 x-A #2: " in lab.run("--dry-run").out
    assert not lab.results.exists()
    ended = lab.run()
    assert ended.code == 0, ended.err
    assert lab.log == ["x-A-1", "x-B-1", "x-B-2", "x-A-2"]
    spans = lab.spans()
    assert all(after[0] - before[1] >= 1.0 for before, after in pairwise(spans))
    report = load(lab.results / "jobs" / "a=x,b=A" / "repeat-2" / "try-1")
    assert report.run.tags == {"a": "x", "b": "A", "repeat": "2"}
    found = lab.table()["configurations"]
    assert [(one["finished"], one["failed"], one["missing"]) for one in found] == [(2, 0, 0)] * 2
    page = (lab.results / "matrix.html").read_text(encoding="utf-8")
    assert all(text in page for text in ("Lowest cost", "x-A", "repeat-2/try-1"))
    before = {path: path.stat().st_mtime for path in lab.results.glob("jobs/*/*/*/*")}
    assert lab.run().code == 0
    assert len(lab.begun) == 4
    assert {path: path.stat().st_mtime for path in lab.results.glob("jobs/*/*/*/*")} == before


def test_a_job_that_fails_stops_no_other(lab: Lab, launcher: Launcher) -> None:
    """Its exit code and last lines are printed, the matrix exits with 1, and only it runs again."""
    command = [sys.executable, "job.py", NAMED, "0.1", "{b}"]
    lab.write(command=command, parameters={"a": ["x"], "b": [3, 0]})
    ended = lab.run()
    assert ended.code == 1
    assert lab.log == ["x-3-1", "x-0-1"]
    assert "x-3 #1: exit code 3" in ended.err
    assert "    job x-3-1" in ended.err
    page = (lab.results / "matrix.html").read_text(encoding="utf-8")
    assert "exit code 3" in page
    assert "job x-3-1" in page
    launcher.can_fail = False
    assert lab.run().code == 0
    assert lab.log == ["x-3-1", "x-0-1", "x-3-1"]
    assert [one["finished"] for one in lab.table()["configurations"]] == [1, 1]


def test_a_file_that_has_changed(lab: Lab, launcher: Launcher) -> None:
    """New values and repeats are new jobs; another command for a finished job is refused."""
    lab.write(parameters={"a": ["x"], "b": [1]})
    assert lab.run().code == 0
    lab.write(parameters={"a": ["x"], "b": [2, 1]})
    assert lab.run().code == 0
    assert lab.log == ["x-1-1", "x-2-1"]
    lab.write(parameters={"a": ["x"], "b": [2]})
    ended = lab.run()
    assert ended.code == 0
    assert "contains 1 job that the file does not describe" in ended.err
    assert [one["parameters"]["b"] for one in lab.table()["configurations"]] == ["2"]
    lab.write(command=[sys.executable, "job.py", NAMED, "0.2", "0"])
    ended = lab.run()
    assert ended.code == 2
    assert "was run with another command" in ended.err
    assert len(lab.log) == 2


def test_a_folder_in_use_is_refused(
    lab: Lab, launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second call while jobs run ends at once and runs none."""
    refused: list[Ended] = []

    def launch(words: Sequence[str], **more: Any) -> Any:
        if not refused:
            refused.append(lab.run())
        return launcher.launch(words, **more)

    monkeypatch.setattr(local, "launch", launch)
    lab.write()
    assert lab.run().code == 0
    assert refused[0].code == 1
    assert "in use by another matrix (process " in refused[0].err
    assert lab.begun == ["x-1-1", "x-2-1"]


@pytest.fixture
def cards(lab: Lab, fake_nvml: Callable[[Scenario], FakeNvml]) -> Lab:
    """Provide a machine with two cards."""
    fake_nvml(Scenario(cards=(h200(Constant(200.0)), h200(Constant(400.0)))))
    del lab.environment["CUDA_VISIBLE_DEVICES"]
    return lab


def test_one_job_a_card(cards: Lab, launcher: Launcher) -> None:
    """Two cards run two jobs at a time; each job sees one card, each card has its own pause."""
    cards.write(repeats=2, command=[sys.executable, "job.py", NAMED, "5", "0"], cool_down_s=1.0)
    ended = cards.run()
    assert ended.code == 0, ended.err
    spans = cards.spans()
    for card in (0, 1):
        mine = sorted(span for span in spans if span[2] == card_uuid(card))
        assert len(mine) == 2
        assert all(after[0] - before[1] >= 1.0 for before, after in pairwise(mine))
    first, second = sorted(spans)[:2]
    assert second[0] < first[1]
    assert cards.table()["scope"] == "gpu"


def test_a_card_that_is_not_there(cards: Lab) -> None:
    """The error comes before any job runs."""
    cards.write(local={"gpus": 3})
    ended = cards.run()
    assert ended.code == 2
    assert "asks for GPU 2, but 2 are visible" in ended.err
    cards.write(local={"gpus": [1]})
    assert f"1 at a time: {card_uuid(1)}" in cards.run("--dry-run").out
    cards.write(local={"gpus_per_job": 2})
    assert f"1 at a time: {card_uuid(0)}+{card_uuid(1)}" in cards.run("--dry-run").out
