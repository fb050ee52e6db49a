import numpy as np
import pytest

from energy_callbacks.sensing.estimation.signal_variability import SignalVariability


def judged(values: list[float] | np.ndarray, smooth_ratio: float = 2.0) -> SignalVariability:
    """Variability of these readings."""
    roughness = SignalVariability(smooth_ratio)
    for value in values:
        roughness.add(float(value))
    return roughness


def test_single_jumps_are_smooth() -> None:
    """A level that changes every 20 readings is smooth."""
    assert judged(np.repeat([1.0, 5.0, 2.0, 8.0, 3.0], 20)).smooth > 0.95


def test_draws_are_rough() -> None:
    """Independent random readings are rough."""
    assert judged(np.random.default_rng(0).normal(size=500)).smooth < 0.25


def test_what_repeats_faster_than_it_is_read_is_rough() -> None:
    """Alternating readings do not differ two readings apart."""
    assert judged([1.0, 2.0] * 50).smooth == 0.0


def test_a_jump_just_now_is_not_called_rough() -> None:
    """The first reading after a jump does not make a series rough."""
    assert judged([*np.repeat([1.0, 5.0, 2.0], 20), 9.0]).smooth == 1.0


def test_nothing_hides_in_readings_that_never_change() -> None:
    """A constant has no variance, local or typical."""
    roughness = judged([3.0] * 10)
    assert roughness.variance(0.0, 0.1, 0.5) == 0.0
    assert roughness.is_known
    assert not judged([3.0]).is_known


def test_variance_is_local_where_smooth_and_typical_where_rough() -> None:
    """Where readings are constant, a smooth series hides little, a rough one the typical amount."""
    assert judged(np.repeat([1.0, 5.0, 2.0], 20)).variance(0.0, 0.1, 0.5) < 0.01
    rough = judged([1.0, 2.0] * 50)
    assert rough.typical == pytest.approx(1.0)
    assert rough.variance(0.0, 0.1, 0.5) == pytest.approx(0.5)


def test_spread_is_the_variance_of_the_readings() -> None:
    """Draws of standard deviation 3 around 100 spread by 9."""
    draws = np.random.default_rng(1).normal(100.0, 3.0, 2000)
    found = [judged(draws[i : i + 100]).spread for i in range(0, 2000, 100)]
    assert np.mean(found) == pytest.approx(9.0, rel=0.15)
