"""Delays that differ between edges that begin a later phase and edges that return."""

import numpy as np
import pytest

from energy_callbacks.sensing.estimation.exposure import Shape
from energy_callbacks.sensing.repeated_phases.phase_fit import phase_energies
from energy_callbacks.sensing.repeated_phases.phase_sums import PhaseSums
from tests.sensing.estimation.steps_of_power import (
    COUNTER,
    FILTER,
    Repeated,
    counted,
    repeated,
    sampled,
    summed,
)


def late_starts(
    late_s: float, repeats: int = 30, long_s: float = 0.6, short_s: float = 0.4
) -> Repeated:
    """Phase 1 begins late on the device by ``late_s``, and ends when the host ends it."""
    return repeated(long_s, short_s, repeats, delays_s=late_s * (1.0 - np.arange(2 * repeats) % 2))


def sums_of(what: Repeated, shape: Shape) -> PhaseSums:
    """The sums over readings of a counter each 100 ms, or over samples each 20 ms."""
    readings = counted(what, 0.1) if shape.is_exact else sampled(what, 0.02, shape.response_s)
    return summed(what, shape, *readings)


@pytest.mark.parametrize("late_s", [0.05, 0.12, 0.3])
@pytest.mark.parametrize("shape", [COUNTER, FILTER], ids=["counter", "samples"])
def test_a_device_that_is_late_at_the_start_of_a_phase_only(shape: Shape, late_s: float) -> None:
    """The energy is that between the device's edges, within 3 % of the energy that has moved."""
    what = late_starts(late_s)
    sums = sums_of(what, shape)
    found = phase_energies(sums)

    moved_j = 300.0 * late_s * 30
    error_j = np.abs(found.energy_j - what.true_j)
    assert (error_j <= np.hypot(1.96 * found.stderr_j, found.edge_j)).all()
    assert (error_j <= 0.03 * moved_j + 0.01 * what.true_j).all()
    assert found.energy_j.sum() == pytest.approx(sums.rates[0].sum(), rel=1e-9)


def test_a_device_that_is_late_at_the_end_only() -> None:
    """The same for edges that return to the earlier phase."""
    what = repeated(0.6, 0.4, 30, delays_s=0.1 * (np.arange(60) % 2))
    found = phase_energies(sums_of(what, COUNTER))

    assert found.energy_j == pytest.approx(what.true_j, rel=0.02)


def test_equal_delays_have_the_interval_of_one_delay() -> None:
    """Two delays are not used where one explains the readings: the interval stays narrow."""
    what = repeated(0.6, 0.4, 30, delays_s=0.1)
    found = phase_energies(sums_of(what, COUNTER))

    assert found.energy_j == pytest.approx(what.true_j, rel=0.01)
    assert found.edge_j[1] <= 0.02 * what.true_j[1]


def test_three_edges_of_a_kind_are_too_few() -> None:
    """Then the energy of equal delays stands, with an interval that is wide."""
    what = late_starts(0.12, repeats=3)
    found = phase_energies(sums_of(what, COUNTER))

    assert found.energy_j[1] > 1.2 * what.true_j[1]


@pytest.mark.parametrize("seed", range(3))
def test_late_starts_in_noise(seed: int) -> None:
    """Starts 20 ms late are found where power varies by 20 % from reading to reading."""
    what = late_starts(0.02)
    t_s, energy_j = counted(what, 0.1)
    noise = np.random.default_rng(seed).uniform(-0.2, 0.2, len(energy_j))
    found = phase_energies(summed(what, COUNTER, t_s, energy_j * (1.0 + noise)))

    assert found.energy_j[1] == pytest.approx(what.true_j[1], rel=0.05)
