"""Energies of phases that repeat, from intervals of a device whose energies are known."""

import math

import numpy as np
import pytest

from energy_callbacks.sensing.estimation.exposure import Shape
from energy_callbacks.sensing.repeated_phases import phase_sums
from energy_callbacks.sensing.repeated_phases.phase_fit import PhaseEnergies, phase_energies
from energy_callbacks.sensing.repeated_phases.phase_sums import Edges, PhaseSums, Stretch
from tests.sensing.estimation.steps_of_power import (
    COUNTER,
    FILTER,
    Repeated,
    Steps,
    counted,
    repeated,
    sampled,
    stretch,
    summed,
)

REPEATS = 20


def fitted(what: Repeated, shape: Shape = COUNTER, response_s: float = 0.015) -> PhaseEnergies:
    """What is found in the readings of a counter every 100 ms, or of samples every 20 ms."""
    found = counted(what, 0.1) if shape is COUNTER else sampled(what, 0.02, response_s)
    return phase_energies(summed(what, shape, *found))


def half_j(found: PhaseEnergies) -> np.ndarray:
    """Half-widths of the 95 % intervals."""
    return np.hypot(1.96 * found.stderr_j, found.edge_j)


def check(what: Repeated, found: PhaseEnergies, limit: float) -> None:
    """The energy of the short phase is inside its interval, which is at most this share wide."""
    off_j, width_j = abs(found.energy_j[1] - what.true_j[1]), half_j(found)[1]
    assert off_j <= width_j
    assert width_j <= limit * what.true_j[1]


@pytest.mark.parametrize("delay_s", [0.0, 0.03, 0.12])
def test_a_delay_is_found(delay_s: float) -> None:
    """A counter every 100 ms, validations of 300 ms: within 1.5 %."""
    what = repeated(0.7, 0.3, REPEATS, delays_s=delay_s)
    check(what, fitted(what), 0.015)


@pytest.mark.parametrize("response_s", [0.0105, 0.015, 0.019])
def test_a_response_is_found(response_s: float) -> None:
    """Samples every 20 ms, validations of 60 ms, delayed by 30 ms: within 6 %."""
    what = repeated(0.25, 0.06, REPEATS, delays_s=0.03)
    check(what, fitted(what, FILTER, response_s), 0.06)


@pytest.mark.parametrize("seed", range(3))
def test_jitter_is_a_part_of_the_interval(seed: int) -> None:
    """Delays between 90 and 150 ms: validations differ in length, so the interval is wider."""
    dice = np.random.default_rng(seed)
    what = repeated(0.7, 0.3, REPEATS, delays_s=dice.uniform(0.09, 0.15, 2 * REPEATS))
    check(what, fitted(what), 0.2)


def test_power_that_varies_is_not_jitter() -> None:
    """Power varies by 20 % in each 50 ms: intervals are 1 % wide, and 1.4 % if it were jitter."""
    widths = []
    for seed in range(4):
        what = repeated(0.7, 0.7, REPEATS, delays_s=0.03, seed=seed)
        t_s, energy_j = counted(what, 0.05)
        stairs = 1.0 + 0.2 * np.random.default_rng(seed).uniform(-1.0, 1.0, len(energy_j))
        found = phase_energies(summed(what, COUNTER, t_s, energy_j * stairs))
        widths.append(half_j(found)[1] / what.true_j[1])
    assert np.mean(widths) <= 0.01


def test_the_place_of_edges_does_not_depend_on_the_interval() -> None:
    """A counter shows edges between its readings, however far apart: 100 ms, within 0.2 %."""
    what = repeated(0.7, 0.3, REPEATS, delays_s=0.03)
    check(what, fitted(what), 0.002)


def test_edges_in_step_with_the_updates_of_a_gauge() -> None:
    """Each repetition is seen at the same place: validations had 7 % too little energy.

    The gauge shows the mean of the 10 ms before its last update, every 20 ms.
    """
    gauge = Shape(is_exact=False, window_s=0.01, period_s=0.02)
    host_s = 1.0 + np.cumsum(np.tile([0.54, 0.06], 60))
    levels_w = np.array([[400.0, 100.0][number % 2] for number in range(len(host_s) + 1)])
    what = Repeated(host_s, Steps(host_s + 0.003, levels_w), float(host_s[-1]) + 1.0)
    shares = []
    for seed in range(4):
        steps_s = np.random.default_rng(seed).uniform(0.015, 0.025, int(what.end_s / 0.02))
        read_s = 0.02 + np.cumsum(steps_s)
        updates_s = np.floor(read_s / 0.02) * 0.02
        values_j = what.device.energy_to_j(updates_s) - what.device.energy_to_j(updates_s - 0.01)
        energy_j = np.diff(read_s) * (values_j[1:] + values_j[:-1]) / 2.0 / 0.01
        found = phase_energies(summed(what, gauge, read_s - 0.015, energy_j))
        shares.append(found.energy_j[1] / what.true_j[1])
    assert np.mean(shares) == pytest.approx(1.0, abs=0.045)


def test_phases_that_a_delay_exchanges_are_told_apart() -> None:
    """The device is behind by the length of a phase, so only the ends of the training differ.

    There, ``validation`` (100 W) or ``train`` (400 W) comes next to a phase of 90 W.
    """
    repeats, length_s = 60, 0.12
    host_s = 2.0 + length_s * np.arange(2 * repeats + 1)
    levels_w = np.array([90.0, *[400.0, 100.0] * repeats, 90.0])
    what = Repeated(host_s, Steps(host_s + length_s, levels_w), float(host_s[-1]) + 2.0)
    t_s, energy_j = sampled(what, 0.02, 0.015)
    sums = PhaseSums(FILTER)
    labels = [0, *[1, 2] * repeats, 0]
    for start in range(0, len(energy_j), 32):
        part_j = energy_j[start : start + 32]
        part_s = t_s[start : start + len(part_j) + 1]
        sums.add(stretch(sums, part_s, part_j, host_s, labels, is_exact=False))
    found = phase_energies(sums)
    true_j = 100.0 * length_s * repeats
    assert abs(found.energy_j[2] - true_j) <= half_j(found)[2] <= 0.02 * true_j


@pytest.mark.parametrize("shape", [COUNTER, FILTER])
@pytest.mark.parametrize("late_s", [0.03, 0.1])
def test_delays_that_differ_by_kind_of_edge_are_fitted(shape: Shape, late_s: float) -> None:
    """The host waits for the device after each validation, but not before: 10 % with one delay."""
    what = repeated(3.0, 1.0, REPEATS, delays_s=np.tile([late_s, 0.0], REPEATS))
    found = fitted(what, shape)
    off_j = abs(found.energy_j[1] - what.true_j[1])
    assert off_j <= 0.02 * what.true_j[1]
    assert off_j <= half_j(found)[1]


@pytest.mark.parametrize("shape", [COUNTER, FILTER])
@pytest.mark.parametrize("delay_s", [0.3, 0.5])
def test_delays_longer_than_the_grid_are_a_part_of_the_interval(
    shape: Shape, delay_s: float
) -> None:
    """They cannot be fitted; what is left at the edges shows them."""
    what = repeated(3.0, 1.0, REPEATS, delays_s=delay_s)
    found = fitted(what, shape)
    assert abs(found.energy_j[1] - what.true_j[1]) <= half_j(found)[1]


@pytest.mark.parametrize("shape", [COUNTER, FILTER])
def test_energies_sum_to_the_total(shape: Shape) -> None:
    """No energy is lost or gained, and no time."""
    what = repeated(0.25, 0.06, REPEATS, delays_s=0.04)
    t_s, energy_j = counted(what, 0.1) if shape is COUNTER else sampled(what, 0.02, 0.012)
    found = phase_energies(summed(what, shape, t_s, energy_j))
    assert found.energy_j.sum() == pytest.approx(energy_j.sum())
    assert found.duration_s.sum() == pytest.approx(t_s[-1] - t_s[0])


def test_phases_of_nearly_the_same_power_have_their_durations() -> None:
    """Readings every 20 ms see each validation of 60 ms for a longer or a shorter time.

    The sum of these times is off by up to 0.1 %, and so was the energy of all validations.
    """
    for seed in range(5):
        what = repeated(0.18, 0.06, REPEATS, seed=seed, levels_w=(600.0, 520.0))
        found = fitted(what, FILTER)
        assert found.energy_j[1] == pytest.approx(what.true_j[1], rel=2e-4)


def test_a_single_phase_has_all_energy() -> None:
    """It has no edges, and so no error from them."""
    sums = PhaseSums(FILTER)
    no_edges = Edges(t_s=np.empty(0), labels=[0])
    sums.add(
        Stretch(t_s=np.arange(11) * 0.1, energy_j=np.full(10, 30.0), edges=no_edges, is_exact=False)
    )
    found = phase_energies(sums)
    assert found.energy_j == pytest.approx([300.0])
    assert found.duration_s == pytest.approx([1.0])
    assert half_j(found).tolist() == [0.0]


def test_a_device_without_power_has_no_energy() -> None:
    """All values are finite."""
    what = repeated(0.7, 0.3, 5, levels_w=(0.0, 0.0))
    found = fitted(what)
    assert found.energy_j.tolist() == [0.0, 0.0]
    assert half_j(found).tolist() == [0.0, 0.0]


def test_phases_of_equal_power_have_their_share_of_time() -> None:
    """No delay can be found, and none is needed: each phase has its duration times 250 W."""
    what = repeated(0.7, 0.3, REPEATS, levels_w=(250.0, 250.0))
    found = fitted(what)
    check(what, found, 0.02)
    assert found.energy_j[1] == pytest.approx(what.true_j[1], rel=1e-3)


def test_a_phase_without_power() -> None:
    """A device that is off between two trainings."""
    what = repeated(0.7, 0.05, REPEATS, delays_s=0.02, levels_w=(400.0, 0.0))
    found = fitted(what)
    assert found.energy_j[1] >= 0.0
    assert found.energy_j[1] <= half_j(found)[1]


@pytest.mark.parametrize("seed", range(4))
def test_energies_are_never_negative(seed: int) -> None:
    """A single phase of 4 ms in noisy power: its power cannot be determined."""
    dice = np.random.default_rng(seed)
    what = Repeated(np.array([5.01, 5.014]), Steps(np.array([5.0]), np.array([300.0, 300.0])), 10.0)
    t_s, energy_j = counted(what, 0.02)
    sums = summed(what, COUNTER, t_s, energy_j * dice.uniform(0.2, 1.8, len(energy_j)))
    found = phase_energies(sums)
    assert (found.energy_j >= 0.0).all()
    assert found.energy_j.sum() == pytest.approx(sums.rates[0].sum())


def test_a_short_phase_that_occurs_once_is_uncertain() -> None:
    """5 ms at 100 W in power that varies by 3 %, seen by a counter every 100 ms: 0.5 J."""
    what = repeated(5.0, 0.005, 1, delays_s=0.03)
    t_s, energy_j = counted(what, 0.1)
    noise = 1.0 + 0.03 * np.random.default_rng(0).standard_normal(len(energy_j))
    found = phase_energies(summed(what, COUNTER, t_s, energy_j * noise))
    assert abs(found.energy_j[1] - what.true_j[1]) <= half_j(found)[1]
    assert half_j(found)[1] > 0.5 * found.energy_j[1]


def test_a_phase_that_never_has_an_interval() -> None:
    """Phase 1 of three lies in a gap of the readings: it has neither time nor energy."""
    edges_s = np.array([5.0, 6.0, 10.0, 15.0])
    sums = PhaseSums(COUNTER)
    for start_s, end_s, first in ((0.0, 4.0, 0), (7.0, 20.0, 0)):
        t_s = np.arange(start_s, end_s, 0.1)
        powers_w = np.array([300.0, 300.0, 100.0, 300.0, 100.0])
        energy_j = np.diff(Steps(edges_s, powers_w).energy_to_j(t_s))
        labels = [0, 1, 2, 0, 2]
        sums.add(stretch(sums, t_s, energy_j, edges_s, labels[first:], is_exact=True))
    found = phase_energies(sums)
    assert np.isfinite(found.energy_j).all()
    assert np.isfinite(half_j(found)).all()
    assert found.energy_j[1] == pytest.approx(0.0, abs=1e-9)
    assert found.duration_s[1] == pytest.approx(0.0, abs=1e-9)
    assert found.energy_j[0] == pytest.approx(300.0 * 8.9, rel=0.02)


def test_many_phases() -> None:
    """Eight phases, each with its own power."""
    count, rounds = 8, 12
    edges_s = np.cumsum(np.random.default_rng(0).uniform(0.4, 0.6, count * rounds))
    levels_w = np.array([100.0 + 50.0 * (n % count) for n in range(count * rounds + 1)])
    device = Steps(edges_s + 0.03, levels_w)
    t_s = np.arange(0.0, edges_s[-1], 0.1)
    sums = PhaseSums(COUNTER)
    labels = [number % count for number in range(len(edges_s) + 1)]
    sums.add(stretch(sums, t_s, np.diff(device.energy_to_j(t_s)), edges_s, labels, is_exact=True))
    found = phase_energies(sums)
    bounds_s = np.concatenate([[0.0], device.edges_s, [t_s[-1]]]).clip(max=t_s[-1])
    energies_j = np.diff(device.energy_to_j(bounds_s))
    true_j = [energies_j[phase::count].sum() for phase in range(count)]
    assert (np.abs(found.energy_j - true_j) <= half_j(found)).all()
    assert (half_j(found) <= 0.03 * np.array(true_j)).all()


def test_days_of_data_do_not_lose_the_delay() -> None:
    """1e9 J at 700 W: a misfit is a small difference of large sums, and still accurate.

    Each point of the grid is rounded by itself in each of 5000 additions; half a million, as in
    such an attempt, round ten times as much.
    """
    what = repeated(20.0, 2.0, REPEATS, delays_s=0.047, levels_w=(700.0, 100.0))
    before = fitted(what)
    sums = summed(what, COUNTER, *counted(what, 0.1))
    lengths_s = np.random.default_rng(0).uniform(297.0, 303.0, 5000)
    for length_s in lengths_s.tolist():
        sums.exposed_s[:, 0] += length_s
        sums.durations_s[:, 0] += length_s
        sums.rates[:, 0] += 700.0 * length_s
        sums.square += 700.0**2 * length_s
        sums.intervals += round(10.0 * length_s)
    assert sums.rates[0].sum() > 1e9
    found = phase_energies(sums)
    assert found.energy_j[1] == pytest.approx(before.energy_j[1], rel=2e-3)
    check(what, found, 0.02)


def test_noise_of_a_rare_phase_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Validations that vary by 20 % are followed by a long training of constant power."""
    monkeypatch.setattr(phase_sums, "_RECENT", 300)
    what = repeated(3.0, 1.0, 10)
    later = Repeated(what.host_s, what.device, what.end_s + 200.0)
    t_s, energy_j = counted(later, 0.1)
    is_in = np.searchsorted(what.host_s, t_s[:-1]) % 2 == 1
    stairs = 1.0 + 0.2 * np.random.default_rng(0).uniform(-1.0, 1.0, len(energy_j))
    sums = summed(later, COUNTER, t_s, np.where(is_in, energy_j * stairs, energy_j))
    found = phase_energies(sums)
    # The mean of 10 x 10 intervals that vary by 20 % / sqrt(3) varies by 1.2 %: 1 J per cent.
    assert found.stderr_j[1] > 0.5 * 0.0115 * 1000.0 / math.sqrt(10.0)


def test_warnings_of_numpy_may_be_errors() -> None:
    """A training may have asked NumPy to raise exceptions; likelihoods may be 0."""
    what = repeated(0.7, 0.3, REPEATS, delays_s=0.03)
    with np.errstate(all="raise"):
        assert np.isfinite(fitted(what).energy_j).all()
