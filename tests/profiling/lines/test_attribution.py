"""Tests of the attribution of energy to lines, against closed forms."""

import pytest

from energy_callbacks.profiling.common.source_location import Line
from energy_callbacks.profiling.lines.attribution import LineShare, attribute_gpu, attribute_host
from energy_callbacks.profiling.lines.tally import LineTime

A, B, C = (Line("/x/train.py", number, "main") for number in (1, 2, 3))
SITES = {A: (0, 2, "at"), B: (0, 4, "at"), C: (0, 6, "at")}
LINES = {site: line for line, site in SITES.items()}


def spent(wall_s, cpu=1.0, others=0.0):
    """Return the time of a span with these numbers of busy cores."""
    one = LineTime()
    one.add(wall_s, cpu, others)
    return one


def given(spans, process_s):
    """Attribute the host's energy; returns the total and the shares."""
    shares: dict[Line, LineShare] = {}
    total_j = attribute_host(
        [({SITES.get(k): v for k, v in bin_.items()}, j) for bin_, j in spans],
        LINES.__getitem__,
        process_s,
        shares,
    )
    return total_j, shares


def test_work_goes_by_cpu_time_and_waiting_is_separate():
    """One second of 100 J: 0.6 s of A's work, 0.2 of B's, 0.2 s in which C waits."""
    total_j, shares = given([({A: spent(0.6), B: spent(0.2), C: spent(0.2, cpu=0.0)}, 100.0)], 0.8)
    assert (shares[A].work_j, shares[B].work_j) == pytest.approx((60.0, 20.0))
    assert (shares[C].work_j, shares[C].waiting_j) == pytest.approx((0.0, 20.0))
    assert total_j == pytest.approx(100.0)


def test_an_idle_second_costs_what_was_measured_in_it():
    """Spans are separate: waiting in a span of 10 J is 10 J, work in one of 100 J is 100 J."""
    _, shares = given([({A: spent(1.0)}, 100.0), ({C: spent(1.0, cpu=0.0)}, 10.0)], 1.0)
    assert shares[A].energy_j == pytest.approx(100.0)
    assert shares[C].energy_j == pytest.approx(10.0)


def test_cores_weigh():
    """A call with four busy cores gets four times the energy of a call with one."""
    bins = {A: spent(0.5, cpu=1.0, others=3.0), B: spent(0.5)}
    _, shares = given([(bins, 100.0)], 2.5)
    assert (shares[A].work_j, shares[B].work_j) == pytest.approx((80.0, 20.0))


def test_what_belongs_to_no_line_is_unattributed():
    """CPU time without samples, and time outside the user's code, is unattributed."""
    total_j, _ = given([({A: spent(1.0)}, 100.0)], process_s=2.0)
    assert total_j == pytest.approx(50.0)
    total_j, _ = given([({A: spent(0.5), None: spent(0.5)}, 100.0)], process_s=1.0)
    assert total_j == pytest.approx(50.0)


def test_unknown_energy_stays_unknown_and_time_is_still_told():
    """Unknown energy is not reported as zero."""
    total_j, shares = given([({A: spent(1.0)}, None)], 1.0)
    assert total_j is None
    assert shares[A].energy_j is None
    assert shares[A].wall_s == 1.0


def test_gpu_energy_goes_by_kernels_and_idle_power_to_nobody():
    """100 s with kernels in 60 s at 500 W, else 100 W: A has two thirds of the kernel time."""
    shares: dict[Line, LineShare] = {C: LineShare(wall_s=50.0, wait_s=50.0)}
    given_j = attribute_gpu(
        34_000.0,
        100.0,
        idle_w=100.0,
        busy=0.6,
        kernel_s={A: 0.2, B: 0.05, None: 0.05},
        shares=shares,
    )
    assert shares[A].gpu_j == pytest.approx(20_000.0)
    assert given_j == pytest.approx(25_000.0)
    assert shares[C].gpu_j is None, "who waits has used nothing"
