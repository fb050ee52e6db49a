"""The published predictor, without its defects."""

from dataclasses import replace

import numpy as np
import pytest

from energy_callbacks.inference.predictor import published
from energy_callbacks.inference.predictor.published import PublishedPredictor
from energy_callbacks.inference.predictor.rows import Array
from energy_callbacks.inference.records import Configuration, Tenant
from tests.inference.predictor.law import HIGHEST_MHZ, equal, grid

pytest.importorskip("sklearn")


def test_it_reproduces_the_windows_of_its_fit() -> None:
    """Trees of depth 5 fit 12 windows; this says nothing about others."""
    windows = grid()
    rates, powers = PublishedPredictor(windows).predict([one.configuration for one in windows])
    assert rates == pytest.approx([one.throughput_per_s for one in windows], rel=0.05)
    assert powers == pytest.approx([one.power_mean_w for one in windows], rel=0.05)


def test_the_highest_clock_is_the_reference() -> None:
    """At it the throughput is the reference, and the curve over the clock has no jump."""
    windows = [one for mhz in (600.0, 1050.0, 1500.0) for one in grid(sm_mhz=mhz)]
    predictor = PublishedPredictor(windows)
    at = [equal("small", 2, 50.0, 16, sm_mhz=mhz) for mhz in np.linspace(600, 1500, 61)]
    rates, _ = predictor.predict([*at, equal("small", 2, 50.0, 16)])
    assert at[-1].sm_mhz == HIGHEST_MHZ
    assert rates[-1] == rates[-2]
    assert (np.diff(rates) >= 0).all()
    assert np.diff(rates).max() < rates[-1] / 10


def test_trees_are_fitted_to_the_features_that_they_are_given_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Features of the fit come from predicted utilisations, not from measured ones."""
    given: list[Array] = []
    made = published.trees

    def recording(features: Array, targets: Array) -> object:
        given.append(features)
        return made(features, targets)

    monkeypatch.setattr(published, "trees", recording)
    windows = [replace(one, sm_util_pct=10.0 + at) for at, one in enumerate(grid())]
    predictor = PublishedPredictor(windows)
    points = published._points([one.configuration for one in windows])
    assert np.array_equal(given[-1], predictor._power_features(points))


def test_unequal_processes_are_refused() -> None:
    """The published predictor was never fitted to them."""
    tenants = (
        Tenant(model="small", share_pct=50.0, batch=1),
        Tenant(model="small", share_pct=50.0, batch=2),
    )
    predictor = PublishedPredictor(grid())
    with pytest.raises(ValueError, match="is for equal processes"):
        predictor.predict([Configuration(tenants=tenants)])
