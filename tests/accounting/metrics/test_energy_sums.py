"""Sums of energies against closed forms."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from energy_callbacks.accounting.metrics.energy_sums import (
    UNKNOWN,
    interval_j,
    total,
    total_of_neighbours,
    whole_window,
)
from energy_callbacks.core.records import Energy


def _energy(energy_j, stderr_j=0.0, systematic_j=0.0, method="counter", coverage=1.0):
    return Energy(
        energy_j=energy_j,
        stderr_j=stderr_j,
        systematic_j=systematic_j,
        method=method,
        coverage=coverage,
    )


def test_joules_and_systematic_bounds_add_and_random_errors_add_in_quadrature():
    """3 J and 4 J of random error make 5 J; 1 J and 2 J of systematic bound make 3 J."""
    found = total([_energy(10.0, 3.0, 1.0), _energy(20.0, 4.0, 2.0)])
    assert found.energy_j == pytest.approx(30.0)
    assert found.stderr_j == pytest.approx(5.0)
    assert found.systematic_j == pytest.approx(3.0)


def test_a_device_not_in_use_adds_no_method() -> None:
    """A part of 0 J, in which a device was not in use, leaves methods and coverage as they are."""
    found = total([Energy(energy_j=0.0, coverage=1.0), _energy(20.0, 4.0, 2.0)])
    assert found == _energy(20.0, 4.0, 2.0)
    assert total([Energy(energy_j=0.0, coverage=1.0)]).method == "none"


def test_errors_from_edges_add_linearly() -> None:
    """100 validations with 2 J from edges and 1 J at random: 200 J and 10 J."""
    found = total([Energy(energy_j=10.0, stderr_j=1.0, edge_j=2.0, coverage=1.0)] * 100)
    assert found.edge_j == pytest.approx(200.0)
    assert found.stderr_j == pytest.approx(10.0)
    assert found.error_j == pytest.approx(math.hypot(19.6, 200.0))


def test_repetition_does_not_resolve_what_edges_hide() -> None:
    """A phase with 60 % error from edges is not resolved, however often it is repeated."""
    one = Energy(energy_j=10.0, edge_j=6.0, coverage=1.0)
    assert not total([one] * 1000).is_resolved
    random = Energy(energy_j=10.0, stderr_j=6.0 / 1.96, coverage=1.0)
    assert total([random] * 1000).is_resolved


def test_neighbours_have_the_edges_of_their_ends_only() -> None:
    """Of 3, 9 and 4 J from edges, 5 J remain; random errors and bounds are as in any sum."""
    parts = [
        Energy(energy_j=10.0, stderr_j=stderr_j, edge_j=edge_j, systematic_j=1.0, coverage=1.0)
        for stderr_j, edge_j in ((2.0, 3.0), (1.0, 9.0), (2.0, 4.0))
    ]
    found = total_of_neighbours(parts, [1.0, 1.0, 1.0])
    assert (found.energy_j, found.stderr_j, found.systematic_j) == (30.0, 3.0, 3.0)
    assert found.edge_j == pytest.approx(5.0)
    assert total_of_neighbours(parts[:1], [1.0]) == parts[0]
    assert total_of_neighbours([UNKNOWN], [1.0]) == UNKNOWN


def test_the_error_from_edges_grows_with_the_extrapolation() -> None:
    """9 J from edges in 90 % of the time are 10 J of the whole."""
    seen = Energy(energy_j=90.0, edge_j=9.0, method="power", coverage=0.9)
    assert whole_window(seen).edge_j == pytest.approx(10.0)
    assert interval_j(seen) == pytest.approx((100.0, 80.0, 120.0))


@pytest.mark.parametrize("parts", [[], [Energy(energy_j=None)] * 3])
def test_a_sum_of_nothing_known_is_unknown(parts):
    """No parts, or only unknown ones, sum to ``None`` and not to zero."""
    assert total(parts) == Energy(energy_j=None)


def test_a_measured_nothing_is_zero():
    """0 J that was measured stays 0 J."""
    assert total([_energy(0.0)]).energy_j == 0.0


def test_an_unknown_part_adds_no_joules_and_lowers_the_coverage():
    """If one of two devices is unknown, its joules are missing and the coverage is half."""
    found = total([_energy(10.0), Energy(energy_j=None)])
    assert (found.energy_j, found.coverage) == (10.0, 0.5)


def test_coverage_is_weighted_with_duration():
    """1 s of 10 s without readings is a coverage of 0.9."""
    found = total([_energy(9.0, coverage=1.0), _energy(0.0, coverage=0.0)], [9.0, 1.0])
    assert found.coverage == pytest.approx(0.9)


def test_spans_without_length_count_alike():
    """Durations that are all zero have equal weights."""
    found = total([_energy(1.0, coverage=1.0), _energy(1.0, coverage=0.5)], [0.0, 0.0])
    assert found.coverage == pytest.approx(0.75)


def test_each_method_is_named_once_in_order():
    """A sum of sums names 'counter' once."""
    first = total([_energy(1.0, method="counter"), _energy(1.0, method="model")])
    found = total([first, _energy(1.0, method="counter"), _energy(None, method="none")])
    assert found.method == "counter, model"


def test_durations_must_match_the_parts():
    """Two energies and one duration are refused."""
    with pytest.raises(ValueError, match="each of the 2 energies, got 1; leave it out"):
        total([_energy(1.0), _energy(2.0)], [1.0])


@given(st.lists(st.floats(min_value=0.0, max_value=1e9), min_size=1, max_size=50))
def test_the_order_of_the_parts_does_not_matter(joules):
    """Joules and error of the reverse order agree up to rounding."""
    parts = [_energy(value, stderr_j=value / 10.0) for value in joules]
    forwards, backwards = total(parts), total(parts[::-1])
    assert forwards.energy_j == backwards.energy_j == math.fsum(joules)
    assert forwards.stderr_j == pytest.approx(backwards.stderr_j, rel=1e-12)
