"""Sums of known values, quantiles of Student's t distribution, and draws from a posterior."""

import math
from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from energy_callbacks.core.yielding import yield_if_due

if TYPE_CHECKING:
    from numpy.random import Generator

Array = npt.NDArray[np.float64]

# Number of Metropolis steps after each tempering step.
_MOVES: Final = 3
# From this number of degrees of freedom, the expansion around the normal distribution is used. The
# relative difference from the integral is 1e-11 there, and decreases with their fourth power.
_MANY: Final = 1000.0


def sum_known(values: Iterable[float | None]) -> float | None:
    """Return the sum of the values that are not ``None``; ``None`` if there are none."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def t_quantile(probability: float, degrees_of_freedom: float) -> float:
    """Return a quantile of Student's t distribution; the relative error is below 1e-9.

    With ``t = sqrt(v) tan(a)`` and ``v`` degrees of freedom, the probability of a value between 0
    and ``t`` is ``c`` times the integral of ``cos(x)^(v - 1)`` from 0 to ``a``, where
    ``c = gamma((v + 1) / 2) / (sqrt(pi) gamma(v / 2))``. Newton's method finds ``a``. For many
    degrees of freedom, the quantile is that of the normal distribution and three terms in ``1/v``
    (Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.5).

    >>> round(t_quantile(0.975, 19), 4)
    2.093

    Args:
        probability: probability that a value is below the quantile; more than 0, less than 1.
        degrees_of_freedom: degrees of freedom of the distribution, at least 1.
    """
    if probability < 0.5:
        return -t_quantile(1.0 - probability, degrees_of_freedom)
    if degrees_of_freedom >= _MANY:
        return _expanded_t_quantile(probability, degrees_of_freedom)
    power = degrees_of_freedom - 1.0
    log_c = math.lgamma(power / 2 + 1) - math.lgamma(degrees_of_freedom / 2)
    wanted = (probability - 0.5) * math.sqrt(math.pi) / math.exp(log_c)
    angle, step = 0.0, math.inf
    while step > 1e-14 * angle:  # the integral is concave, so that each step ends below the root
        step = (wanted - _cosine_integral(angle, power)) / math.cos(angle) ** power
        angle += step
    return math.sqrt(degrees_of_freedom) * math.tan(angle)


def _cosine_integral(angle: float, power: float) -> float:
    """Return the integral of ``cos(x)^power`` from 0 to ``angle``.

    The quadrature is inaccurate near pi/2 if the power is small. It integrates ``cos(x)^(power +
    4)``, from which the recurrence of integration by parts computes the result.
    """
    nodes, weights = _quadrature()
    integral = angle * float(weights @ np.cos(angle * nodes) ** (power + 4.0))
    for high in (power + 4.0, power + 2.0):
        edge = math.sin(angle) * math.cos(angle) ** (high - 1.0)
        integral = (high * integral - edge) / (high - 1.0)
    return integral


@cache
def _quadrature() -> tuple[Array, Array]:
    """Return nodes and weights of the Gauss-Legendre quadrature between 0 and 1."""
    from numpy.polynomial.legendre import leggauss

    nodes, weights = leggauss(64)
    return (nodes + 1.0) / 2.0, weights / 2.0


def _expanded_t_quantile(probability: float, v: float) -> float:
    from statistics import NormalDist

    z = NormalDist().inv_cdf(probability)
    terms = (
        z,
        (z**3 + z) / 4.0,
        (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / 96.0,
        (3.0 * z**7 + 19.0 * z**5 + 17.0 * z**3 - 15.0 * z) / 384.0,
    )
    return math.fsum(term / v**order for order, term in enumerate(terms))


def tempered(
    points: Array,
    likelihoods: Callable[[Array], Array],
    moved: Callable[[Array, Array, float], tuple[Array, Array]],
    random: "Generator",
    *,
    bisections: int,
) -> Array:
    """Draw from a posterior distribution by adaptive tempering.

    This is sequential Monte Carlo (Del Moral, Doucet, Jasra, J. R. Stat. Soc. B 68, 2006).

    Args:
        points: draws from the prior distribution, (draws, parameters).
        likelihoods: returns the log-likelihoods of points, (draws,).
        moved: does a Metropolis step with each point, for the power of the likelihood that is its
            last argument. Takes and returns points and their log-likelihoods.
        random: chooses the points that are kept.
        bisections: number of bisections to find the size of a tempering step. The draws depend on
            its last digits.

    Returns:
        Draws from the posterior distribution, (draws, parameters).
    """
    now, heat = likelihoods(points), 0.0
    while heat < 1.0:
        step = _step(now, 1.0 - heat, bisections)
        heat += step
        weights = np.exp(step * (now - now.max()))
        chosen = random.choice(len(points), size=len(points), p=weights / weights.sum())
        points, now = points[chosen], now[chosen]
        for _ in range(_MOVES):
            points, now = moved(points, now, heat)
            yield_if_due()
    return points


def _step(likelihoods: Array, most: float, bisections: int) -> float:
    """Return the largest tempering step, at most ``most``, with enough effective samples.

    The effective sample size must be at least half of the number of points.
    """

    def is_enough(step: float) -> bool:
        weights = np.exp(step * (likelihoods - likelihoods.max()))
        return bool(weights.sum() ** 2 / (weights**2).sum() >= len(weights) / 2)

    if is_enough(most):
        return most
    low, high = 0.0, most
    for _ in range(bisections):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if is_enough(middle) else (low, middle)
    return max(low, 1e-6 * most)
