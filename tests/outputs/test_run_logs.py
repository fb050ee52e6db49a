"""Runs of experiment trackers: each gets everything, whatever fails in the others or before."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from energy_callbacks.outputs.run_logs import RunLogs

FIGURES = {"final/total_wh": 1.0}


class Recording:
    """A run that records its calls, and fails in some of them."""

    def __init__(self, name: str, *fails_in: str) -> None:
        self.name = name
        self.fails_in = fails_in
        self.calls: dict[str, Any] = {}

    def _note(self, method: str, *values: Any) -> None:
        if method in self.fails_in:
            raise ConnectionError("the server is gone")
        self.calls[method] = values

    def begin(self, config: Mapping[str, Any], tag_prefix: str) -> None:
        self._note("begin", config, tag_prefix)

    def end(self, figures: Mapping[str, float]) -> None:
        self._note("end", figures)

    def report(self, figures: Mapping[str, float], files: Sequence[Path]) -> None:
        self._note("report", figures, files)


def call_all(runs: RunLogs) -> None:
    """Call what a training calls."""
    runs.begin({"batch_size": 4}, "mine/")
    runs.end(FIGURES)
    runs.report(FIGURES, Path("folder"))


def test_each_run_gets_everything() -> None:
    """The report has two files."""
    runs = [Recording("one"), Recording("two")]
    call_all(RunLogs(runs))
    files = [Path("folder/energy_report.html"), Path("folder/energy_report.json")]
    expected = {
        "begin": ({"batch_size": 4}, "mine/"),
        "end": (FIGURES,),
        "report": (FIGURES, files),
    }
    assert [run.calls for run in runs] == [expected, expected]


def test_a_failure_prevents_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    """After a failure at the start, the same run still gets the report, and others get all."""
    runs = [Recording("one", "begin"), Recording("two")]
    with caplog.at_level(logging.WARNING):
        call_all(RunLogs(runs))
    assert [list(run.calls) for run in runs] == [["end", "report"], ["begin", "end", "report"]]
    [record] = caplog.records
    assert record.getMessage().endswith("is not in the run of one")


def test_a_report_that_does_not_arrive_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """It names the file, the tracker and what to do."""
    with caplog.at_level(logging.WARNING):
        call_all(RunLogs([Recording("W&B", "report")]))
    [record] = caplog.records
    message = record.getMessage()
    assert str(Path("folder/energy_report.html")) in message
    assert "W&B" in message
    assert "wait_for_report()" in message


def test_there_may_be_none() -> None:
    """Then the object is false."""
    call_all(RunLogs())
    assert not RunLogs()
    assert RunLogs([Recording("one")])
