"""Student's t against the published table."""

import pytest

from energy_callbacks.core.stats import t_quantile


@pytest.mark.parametrize(
    ("freedom", "quantile"), [(1, 12.706), (2, 4.303), (5, 2.571), (7, 2.365), (30, 2.042)]
)
def test_quantiles_are_those_of_the_table(freedom: int, quantile: float) -> None:
    """NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2, t for 0.975."""
    assert t_quantile(0.975, freedom) == pytest.approx(quantile, abs=5e-4)
