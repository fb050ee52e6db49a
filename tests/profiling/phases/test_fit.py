"""Tests of phases whose power changes inside."""

import math

import numpy as np

from energy_callbacks.profiling.phases.errors import PhaseSplit
from energy_callbacks.profiling.phases.exposure import Spans
from energy_callbacks.profiling.phases.fit import Readings, cut
from energy_callbacks.profiling.phases.split import Refusal, split

RESPONSE_S, LAG_S = 0.015, 0.005


def test_pieces_share_an_occurrence_evenly():
    """Pieces of a phase have separate labels, and spans outside phases remain."""
    spans = Spans(edges_s=np.array([0.0, 3.0, 5.0, 9.0]), labels=np.array([0, -1, 1]), count=2)
    fine, of = cut(spans, (3, 2))
    np.testing.assert_allclose(fine.edges_s, [0.0, 1.0, 2.0, 3.0, 5.0, 7.0, 9.0])
    assert fine.labels.tolist() == [0, 1, 2, -1, 3, 4]
    assert of.tolist() == [0, 0, 0, 1, 1]


def network(*, rises: bool):
    """Simulate forward of 40 ms and backward of 60 ms, whose power changes if ``rises``."""
    rng = np.random.default_rng(4)
    steps = 300
    widths_s = np.tile([0.04, 0.06], steps) * (1.0 + 0.002 * rng.standard_normal(2 * steps))
    edges_s = np.concatenate(([0.0], np.cumsum(widths_s)))
    grid_s = np.arange(0.0, edges_s[-1], 1e-4)
    at = np.clip(np.searchsorted(edges_s, grid_s, "right") - 1, 0, 2 * steps - 1)
    part = (grid_s - edges_s[at]) / widths_s[at]
    rising_w = np.where(at % 2 == 0, 300.0 + 300.0 * part, 600.0 - 300.0 * part)
    power_w = rising_w if rises else np.where(at % 2 == 0, 380.0, 500.0)
    kept, seen_w = math.exp(-1e-4 / RESPONSE_S), np.empty_like(power_w)
    state_w = power_w[0]
    for number, now_w in enumerate(power_w):
        state_w = now_w + (state_w - now_w) * kept
        seen_w[number] = state_w
    t_s = np.cumsum(rng.uniform(0.016, 0.024, int(edges_s[-1] / 0.02) - 2))
    seen = np.interp(t_s - LAG_S, grid_s, seen_w) + rng.uniform(-5.0, 5.0, len(t_s))
    truth_w = np.array([power_w[at % 2 == phase].mean() for phase in (0, 1)])
    spans = Spans(edges_s=edges_s, labels=np.tile([0, 1], steps), count=2)
    readings = Readings(t_s=t_s, power_w=seen, lag_s=LAG_S, response_s=RESPONSE_S)
    return spans, readings, steps, truth_w


def test_power_that_changes_inside_a_phase():
    """The split is refused: the power may change inside a phase, or edges may be elsewhere."""
    spans, readings, steps, _ = network(rises=True)
    found = split(spans, readings, ("forward", "backward"), steps)
    assert isinstance(found, Refusal)
    assert "has an error of" in found.why


def test_without_knowledge_of_the_sensor_it_is_refused():
    """Without a known sensor, shapes and the response cannot be separated."""
    spans, readings, steps, _ = network(rises=True)
    blind = Readings(t_s=readings.t_s, power_w=readings.power_w)
    assert isinstance(split(spans, blind, ("forward", "backward"), steps), Refusal)


def test_nothing_is_cut_where_one_power_is_enough():
    """Unnecessary pieces would only add noise."""
    spans, readings, steps, truth_w = network(rises=False)
    found = split(spans, readings, ("forward", "backward"), steps)
    assert isinstance(found, PhaseSplit)
    assert found.pieces == (1, 1)
    np.testing.assert_allclose(found.power_w, truth_w, rtol=0.02)
