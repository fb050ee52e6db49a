"""Combinations of settings that were not measured."""

from dataclasses import replace

from energy_callbacks.inference.predictor.proposal import untried
from energy_callbacks.inference.records import MeasuredWindow
from tests.inference.predictor.law import equal, grid, measured


def test_new_combinations_of_what_was_measured() -> None:
    """Models keep their own batches; what was measured or has failed is left out."""
    large = measured(equal("large", 1, 100.0, 8))
    windows: list[MeasuredWindow] = [*grid(batches=(1, 4)), large]
    failed = replace(windows.pop(3), status="oom", throughput_per_s=None)
    assert untried([*windows, failed]) == []
    assert untried(windows) == [failed.configuration]
    slow = measured(equal("large", 1, 100.0, 8, sm_mhz=900.0))
    found = untried([*windows, failed, slow])
    assert found == sorted(
        (replace(one.configuration, sm_mhz=900.0) for one in [*windows[:-1], failed]), key=str
    )


def test_many_combinations_are_thinned_out() -> None:
    """A trace with many settings must not need memory for all pairs of them."""
    batches, clocks = range(1, 61), range(900, 961)
    windows = [measured(equal("small", 1, 100.0, batch)) for batch in batches]
    windows += [measured(equal("small", 1, 100.0, 1, sm_mhz=float(mhz))) for mhz in clocks]
    found = untried(windows)
    assert 500 <= len(found) <= 1000
    assert {one.sm_mhz for one in found} >= {900.0, 960.0}
