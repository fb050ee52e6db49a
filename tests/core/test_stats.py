"""Student's t against the published table and SciPy."""

import pytest
from scipy.special import stdtrit

from energy_callbacks.core.stats import t_quantile


@pytest.mark.parametrize(
    ("freedom", "quantile"), [(1, 12.706), (2, 4.303), (5, 2.571), (7, 2.365), (30, 2.042)]
)
def test_quantiles_are_those_of_the_table(freedom: int, quantile: float) -> None:
    """NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2, t for 0.975."""
    assert t_quantile(0.975, freedom) == pytest.approx(quantile, abs=5e-4)


@pytest.mark.parametrize("probability", [0.001, 0.025, 0.5, 0.6, 0.975, 0.9999, 1 - 6e-6])
@pytest.mark.parametrize("freedom", [1, 1.01, 1.5, 2, 7.3, 99.5, 999.9, 1000, 1e4, 1e9])
def test_quantiles_are_those_of_scipy(probability: float, freedom: float) -> None:
    """On both sides of the change of method, for fractions of degrees of freedom, and in tails."""
    expected = pytest.approx(float(stdtrit(freedom, probability)), rel=1e-9, abs=1e-12)
    assert t_quantile(probability, freedom) == expected
