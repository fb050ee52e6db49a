"""Sums over intervals are what their definitions say, in any split, and bounded in size."""

import numpy as np
import pytest

from energy_callbacks.accounting.metrics import phase_energy
from energy_callbacks.sensing.estimation import phase_sums
from energy_callbacks.sensing.estimation.exposure import Shape
from energy_callbacks.sensing.repeated_phases.edge_delays import delays_s
from energy_callbacks.sensing.repeated_phases.phase_sums import Edges, PhaseSums, Stretch
from tests.sensing.estimation.steps_of_power import (
    COUNTER,
    FILTER,
    Repeated,
    counted,
    repeated,
    sampled,
    stretch,
    summed,
)

WHAT = repeated(0.7, 0.3, 4, delays_s=0.03)
SHAPES = [COUNTER, FILTER, Shape(is_exact=False, window_s=0.5, period_s=0.1)]


def intervals(shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """Intervals of the training."""
    return sampled(WHAT, 0.02, 0.015) if shape is FILTER else counted(WHAT, 0.05)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("batch", [5, 10_000])
def test_stretches_may_be_split_anywhere(shape: Shape, batch: int) -> None:
    """The sums do not depend on the number of intervals that are added at once."""
    t_s, energy_j = intervals(shape)
    one, other = (summed(WHAT, shape, t_s, energy_j, batch=size) for size in (batch, 32))
    assert set(one.products) == set(other.products) == {(0, 1)}
    for pair, products in one.products.items():
        assert products == pytest.approx(other.products[pair], abs=1e-9)
    assert one.rates == pytest.approx(other.rates, abs=1e-9)
    assert one.durations_s == pytest.approx(other.durations_s, abs=1e-9)
    assert one.square == pytest.approx(other.square)
    assert one.changes.tolist() == other.changes.tolist() == [[0, 4], [4, 0]]
    assert one.intervals == other.intervals == len(energy_j)


def test_sums_are_those_of_the_documentation() -> None:
    """M, b and T for the counter of a device without delay, by exposures from overlaps."""
    t_s, energy_j = counted(WHAT, 0.05)
    sums = summed(WHAT, COUNTER, t_s, energy_j)
    fine_s = np.arange(0.0, WHAT.end_s, 1e-4) + 5e-5
    in_short = np.searchsorted(WHAT.host_s, fine_s) % 2 == 1
    short_s = np.histogram(fine_s[in_short], t_s)[0] * 1e-4
    exposed_s = np.array([0.05 - short_s, short_s])
    place = int(np.abs(delays_s(0.0)).argmin())  # no delay
    products = np.einsum("pk,qk->pq", exposed_s, exposed_s) / 0.05
    # Times on the host are multiples of 0.1 ms here, so each edge is off by up to that.
    found = sums.fits(sums.no_delay[None], 0.0, 0.0).products[0]
    assert found == pytest.approx(products, abs=5e-3)
    assert sums.rates[place] == pytest.approx(exposed_s @ energy_j / 0.05, abs=1.0)
    assert sums.square == pytest.approx((energy_j**2).sum() / 0.05)
    assert sums.durations_s[place] == pytest.approx(exposed_s.sum(axis=1), abs=1e-3 * 2 * 4)
    assert sums.known_s == pytest.approx(t_s[-1])
    assert sums.mean_w == pytest.approx(energy_j.sum() / t_s[-1])
    assert sums.mean_width_s == pytest.approx(0.05)
    assert sums.shortest_s == pytest.approx(np.diff(WHAT.host_s)[::2].mean(), rel=0.05)


@pytest.mark.parametrize("shape", SHAPES)
def test_exposures_of_an_interval_sum_to_its_width(shape: Shape) -> None:
    """For each point of the grid."""
    t_s, energy_j = intervals(shape)
    sums = PhaseSums(shape)
    part = stretch(sums, t_s, energy_j, WHAT.host_s, WHAT.labels, is_exact=shape.is_exact)
    sums.add(part)
    assert sums.exposed(part).sum(axis=0) == pytest.approx(
        np.broadcast_to(np.diff(t_s), (len(sums.rates), len(energy_j)))
    )


def test_a_stretch_without_edges_is_added_like_one_with_edges() -> None:
    """The shortcut for stretches of one phase gives what the exposures give."""
    t_s, energy_j = np.arange(5) * 0.1, np.array([10.0, 20.0, 30.0, 40.0])
    plain, with_edge = PhaseSums(COUNTER), PhaseSums(COUNTER)
    plain.add(
        Stretch(
            t_s=t_s,
            energy_j=energy_j,
            edges=Edges(t_s=np.empty(0), labels=[1]),
            is_exact=True,
        )
    )
    old = Edges(t_s=np.array([-9.0]), labels=[0, 1])
    with_edge.add(Stretch(t_s=t_s, energy_j=energy_j, edges=old, is_exact=True))
    assert plain.durations_s == pytest.approx(with_edge.durations_s)
    assert plain.rates == pytest.approx(with_edge.rates)


def long_training(seconds: int) -> Repeated:
    """Phases of 10 and 1 s."""
    return repeated(10.0, 1.0, seconds // 11, seed=1)


def size(sums: PhaseSums) -> int:
    """Bytes of all arrays."""
    kept = sum(one.t_s.nbytes + one.energy_j.nbytes for one in sums.recent)
    return sum(one.nbytes for one in sums.products.values()) + sums.rates.nbytes + kept


def test_the_size_does_not_grow_with_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice the time, the same size: once the newest intervals are complete."""
    monkeypatch.setattr(phase_sums, "_RECENT", 100)
    sizes = []
    for seconds in (400, 1600):
        what = long_training(seconds)
        sizes.append(size(summed(what, COUNTER, *counted(what, 0.5))))
    assert sizes[1] == pytest.approx(sizes[0], rel=0.02)


def test_the_size_is_bounded() -> None:
    """8 phases of a sensor with a response, all with common edges: 0.9 MB for each device."""
    sums = PhaseSums(FILTER)
    edges = Edges(t_s=np.arange(7) * 0.1, labels=list(range(8)))
    t_s = np.arange(40) * 0.02
    sums.add(Stretch(t_s=t_s, energy_j=np.ones(39), edges=edges, is_exact=False))
    points = len(delays_s(FILTER.response_s))
    products = sum(one.nbytes for one in sums.products.values())
    assert products == 8 * 28 * points**2 <= 0.9e6


def test_intervals_of_rare_phases_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The noise of a phase can be computed long after its last repetition."""
    monkeypatch.setattr(phase_sums, "_RECENT", 100)
    what = repeated(2.0, 1.0, 3)
    later = Repeated(what.host_s, what.device, what.end_s + 500.0)
    sums = summed(later, COUNTER, *counted(later, 0.1))
    assert sum(1 in one.edges.labels for one in sums.recent) >= 3
    assert sum(len(one.energy_j) for one in sums.recent) <= 2 * (100 + 32)


@pytest.mark.parametrize("shape", [FILTER, COUNTER])
def test_products_are_computed_on_one_core(shape: Shape) -> None:
    """No product has more multiplications than OpenBLAS computes on one core."""
    points = len(PhaseSums(shape).rates)
    assert points**2 * phase_energy._BATCH <= 65536 * 4
