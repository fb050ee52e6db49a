"""Builds reports without charts: drawing them takes most of the time of a short training."""

import pytest


def leave_out_charts(patch: pytest.MonkeyPatch) -> None:
    """Make reports without the charts of the run from now on."""
    patch.setattr("energy_callbacks.report.charts.catalogue.CHARTS", ())
    patch.setattr("energy_callbacks.report.render.html.CHARTS", ())


@pytest.fixture(autouse=True)
def no_charts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave charts out, except in tests with the marker ``charts``."""
    if request.node.get_closest_marker("charts") is None:
        leave_out_charts(monkeypatch)
