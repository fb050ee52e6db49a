"""Reports without charts: drawing takes most of the time of a short training with a report."""

import pytest


def leave_out_charts(patch: pytest.MonkeyPatch) -> None:
    """From now on reports are as ever, but for the charts of the run."""
    patch.setattr("energy_callbacks.report.charts.catalogue.CHARTS", ())
    patch.setattr("energy_callbacks.report.render.html.CHARTS", ())


@pytest.fixture(autouse=True)
def no_charts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that look at charts mark themselves with ``charts`` and get them."""
    if request.node.get_closest_marker("charts") is None:
        leave_out_charts(monkeypatch)
