"""Computes sums of known values, and quantiles of Student's t distribution."""

from collections.abc import Iterable


def sum_known(values: Iterable[float | None]) -> float | None:
    """Return the sum of the values that are not ``None``; ``None`` if there are none."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def t_quantile(probability: float, degrees_of_freedom: float) -> float:
    """Return a quantile of Student's t distribution, computed by ``scipy.special.stdtrit``.

    >>> round(t_quantile(0.975, 19), 4)
    2.093

    Args:
        probability: probability that a value is below the quantile; more than 0, less than 1.
        degrees_of_freedom: degrees of freedom of the distribution, at least 1.
    """
    from scipy.special import stdtrit

    return float(stdtrit(degrees_of_freedom, probability))
