"""Comparisons without charts, as ``tests/charts.py`` has it for reports of one run."""

import pytest


@pytest.fixture(autouse=True)
def no_charts_of_comparisons(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that look at charts mark themselves with ``charts`` and get them."""
    if request.node.get_closest_marker("charts") is None:
        for module in ("page", "plots"):
            monkeypatch.setattr(f"energy_callbacks.compare.{module}.CHARTS", ())
