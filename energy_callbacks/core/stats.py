"""Sums of known values, quantiles of Student's t distribution, and draws from a posterior."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from energy_callbacks.core.yielding import yield_if_due

if TYPE_CHECKING:
    from numpy.random import Generator

Array = npt.NDArray[np.float64]

# Number of Metropolis steps after each tempering step.
_MOVES: Final = 3


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
