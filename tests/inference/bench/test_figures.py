"""The figures of a run, compared with values computed by hand."""

import pytest

from energy_callbacks.inference.bench.report.figures import figures, settling_s
from energy_callbacks.inference.bench.rows import Row


def made(
    powers_w: list[float], cap_w: float = 100.0, start: int = 0, rate: float = 10.0
) -> list[Row]:
    """Return windows of 1 s with these powers."""
    return [
        Row(
            start_s=float(start + at),
            end_s=start + at + 1.0,
            cap_w=cap_w,
            power_mean_w=power_w,
            throughput_per_s=rate,
            energy_j=power_w,
        )
        for at, power_w in enumerate(powers_w)
    ]


def unknown(_: float) -> None:
    """Return the best throughput of a real GPU."""


def test_windows_above_the_cap() -> None:
    """Those of the first 5 s after each change do not count, except in overshoot and excess."""
    rows = made([110.0] * 5 + [99.0] * 3 + [103.0] + [99.0] * 1)
    rows += made([85.0] * 5 + [79.0] * 4 + [81.0], cap_w=80.0, start=10)
    found = figures(rows, unknown)
    assert found.above_share == pytest.approx(2 / 10)
    assert found.overshoot_w == pytest.approx(10.0)
    assert found.excess_j == pytest.approx(5 * 10 + 3 + 5 * 5 + 1)


def test_a_window_of_exactly_the_cap_is_not_above_it() -> None:
    """A run that keeps to the cap has no overshoot."""
    found = figures(made([100.0] * 8), unknown)
    assert (found.above_share, found.overshoot_w, found.excess_j) == (0.0, 0.0, 0.0)


def test_throughput_and_energy() -> None:
    """The published throughput is that of the second half; energy is divided by all samples."""
    rows = made([50.0] * 4, rate=0.0) + made([90.0] * 4, start=4, rate=20.0)
    found = figures(rows, unknown)
    assert found.throughput_per_s == pytest.approx(20.0)
    assert found.whole_throughput_per_s == pytest.approx(10.0)
    assert found.j_per_request == pytest.approx((4 * 50 + 4 * 90) / 80)


def test_a_gpu_without_work_has_no_energy_per_request() -> None:
    """It is not known, instead of infinite."""
    assert figures(made([50.0] * 8, rate=0.0), unknown).j_per_request is None


def test_the_share_of_the_optimum() -> None:
    """Caps are weighted by their time; it is not known where one optimum is not."""
    rows = made([90.0] * 10, rate=10.0) + made([70.0] * 7, cap_w=80.0, start=10, rate=4.0)
    best = {100.0: 20.0, 80.0: 5.0}
    found = figures(rows, best.get)
    assert found.optimum_share == pytest.approx((5 * 10 + 2 * 4) / (5 * 20 + 2 * 5))
    assert found.optimum_per_s == pytest.approx((5 * 20 + 2 * 5) / 7)
    assert figures(rows, {100.0: 20.0}.get).optimum_share is None
    assert figures(rows, unknown).optimum_share is None


def test_settling() -> None:
    """It lasts until the last window above the cap or far from the steady power."""
    assert settling_s(made([90.0] * 10)) == 0.0
    assert settling_s(made([50.0, 60.0, 80.0] + [98.0] * 7)) == 3.0
    assert settling_s(made([98.0, 98.0, 101.0] + [98.0] * 7)) == 3.0
    assert settling_s(made([98.0] * 9 + [101.0])) is None


def test_the_longest_settling_counts() -> None:
    """Of several parts, it is the longest; if one has not settled, it is not known."""
    quick, slow = made([98.0] * 10), made([50.0] * 2 + [78.0] * 8, cap_w=80.0, start=10)
    assert figures(quick + slow, unknown).settling_s == 2.0
    never = made([78.0] * 9 + [90.0], cap_w=80.0, start=10)
    assert figures(quick + never, unknown).settling_s is None


def test_a_short_run_has_no_shares() -> None:
    """No window counts if all are in the transient."""
    found = figures(made([90.0] * 5), lambda _: 10.0)
    assert found.above_share is found.optimum_share is None


def test_no_rows() -> None:
    """A file without rows is not a result."""
    with pytest.raises(ValueError, match="without rows"):
        figures([], unknown)
