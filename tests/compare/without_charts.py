"""Leaves charts out of comparisons, as ``tests/charts.py`` does for reports."""

import pytest


@pytest.fixture(autouse=True)
def no_charts_of_comparisons(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leaves out the charts unless a test has the marker ``charts``."""
    if request.node.get_closest_marker("charts") is None:
        for module in ("page", "plots"):
            monkeypatch.setattr(f"energy_callbacks.compare.{module}.CHARTS", ())
