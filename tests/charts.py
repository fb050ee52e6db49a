"""Builds reports without charts: drawing them takes most of the time of a short training."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from energy_callbacks.accounting.open_attempts import wait_for_reports
from energy_callbacks.report_process import queue


def leave_out_charts(patch: pytest.MonkeyPatch) -> None:
    """Make reports without charts of the run and of its sections from now on."""
    patch.setattr("energy_callbacks.report.charts.catalogue.CHARTS", ())
    patch.setattr("energy_callbacks.report.render.html.CHARTS", ())
    patch.setattr("energy_callbacks.report.charts.sections.Chart", lambda **_: None)


@pytest.fixture(autouse=True)
def no_charts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Leave charts out, except in tests with the marker ``charts``.

    Reports are made in this process, on the journal's thread: a report process draws charts. The
    end of the test waits for them.
    """
    monkeypatch.setattr(queue.reports, "make", queue.make_here)
    if request.node.get_closest_marker("charts") is None:
        leave_out_charts(monkeypatch)
    yield
    wait_for_reports(Path("/"))
