"""Models the cost of a step at any batch size, from trials at some sizes.

The cost of a step with batch size b has a constant part (launching kernels, the optimizer) and a
part that grows with b. The two parts overlap in time to some degree, and large sizes may have an
additional loss::

    cost of a step = k (1 + (b / r)^p)^(1/p) (1 + b / q)

With ``p`` = 1 the parts add up (no overlap); with a large ``p`` only the larger part counts. At b =
``r`` both parts are equal. With ``q`` = infinity there is no additional loss. ``p`` = 1 and ``q`` =
infinity have a positive prior probability. A Gaussian process in the logarithm of the size models
deviations from this family of curves. The strength of the deviations is estimated from the trials,
so that the curves follow the measured points even if the family does not fit.

Curves are drawn from the posterior distribution of ``r``, ``p``, ``q`` and the strength
(sequential Monte Carlo: Del Moral, Doucet, Jasra, J. R. Stat. Soc. B 68, 2006). ``k`` and the
Gaussian process are integrated analytically.
"""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

# Number of curves, and number of points in parameter space for each strength of the deviations.
_DRAWS: Final = 400
# Number of Metropolis steps after each tempering step.
_MOVES: Final = 3
# Possible strengths (relative sizes) of the deviations, with equal prior probability.
_STRENGTHS: Final = (0.0, 0.03, 0.12)
# Correlation length of the deviation, in octaves (factors of two) of the size.
_OCTAVES: Final = 1.5
# Relative error that is added in quadrature to the error of a trial, because tiles (the blocks of
# data that a kernel processes) and clock rates change the time of a step by about this much.
_FLOOR: Final = 0.003


def drawn_curves(sizes: Sequence[int], costs: Array, errors: Array, at: Sequence[int]) -> Array:
    """Draw curves from the posterior distribution, given the trials.

    Args:
        sizes: (n,) tried sizes, each once, in ascending order.
        costs: (n,) costs of a step, in any unit.
        errors: (n,) relative standard errors of ``costs``.
        at: (m,) sizes at which the curves are evaluated.

    Returns:
        (draws, m) natural logarithms of the cost of a step. The result is the same in each call
            with the same arguments.
    """
    logs, targets = np.log(np.asarray(sizes, float)), np.log(np.asarray(at, float))
    errors = np.hypot(errors, _FLOOR)
    fits = [_Fit(logs, np.log(costs), errors, strength, targets) for strength in _STRENGTHS]
    evidence = np.array([fit.evidence for fit in fits])
    shares = np.exp(evidence - evidence.max())
    counts = np.rint(_DRAWS * shares / shares.sum()).astype(int)
    return np.concatenate(
        [fit.curves(targets, count) for fit, count in zip(fits, counts, strict=True) if count]
    )


class _Fit:
    """The posterior distribution of the curves for one strength of the deviations."""

    def __init__(
        self, logs: Array, values: Array, errors: Array, strength: float, targets: Array
    ) -> None:
        self._logs = logs
        self._values = values
        self._strength = strength
        self._rng = np.random.default_rng(0)
        low, high = min(targets.min(), logs[0]), max(targets.max(), logs[-1])
        # The parameters are log r, log p and log q. If log p is negative, p is 1. If log q is above
        # ``_flat_from``, q is infinite.
        self._flat_from = high + 4.0
        self._low = np.array([low - 1.5, -1.0, high - 0.7])
        self._high = np.array([high + 1.5, math.log(8.0), high + 8.0])
        root = np.linalg.cholesky(self._kernel(logs, logs) + np.diag(errors**2))
        self._whitener = np.linalg.inv(root)
        self._ones = self._whitener.sum(axis=1)
        self._weight = float(self._ones @ self._ones)
        self.evidence = -float(np.log(np.diag(root)).sum()) - 0.5 * math.log(self._weight)
        self._points = self._posterior()

    def curves(self, targets: Array, count: int) -> Array:
        """Draw ``count`` curves, and return the logarithms of the cost of a step, (count, m)."""
        points = self._points[:count]
        residuals = self._values - self._shapes(points, self._logs)
        level = residuals @ self._whitener.T @ self._ones / self._weight
        level += self._rng.normal(size=count) / math.sqrt(self._weight)
        curves = self._shapes(points, targets) + level[:, None]
        if not self._strength:
            return np.asarray(curves)
        white = (residuals - level[:, None]) @ self._whitener.T
        cross = self._kernel(targets, self._logs) @ self._whitener.T
        roots, axes = np.linalg.eigh(self._kernel(targets, targets) - cross @ cross.T)
        spread = axes * np.sqrt(np.clip(roots, 0.0, None))
        return np.asarray(curves + white @ cross.T + self._rng.normal(size=curves.shape) @ spread.T)

    def _kernel(self, left: Array, right: Array) -> Array:
        distance = (left[:, None] - right[None, :]) / (_OCTAVES * math.log(2.0))
        return np.asarray(self._strength**2 * np.exp(-0.5 * distance**2))

    def _shapes(self, points: Array, logs: Array) -> Array:
        """Return the logarithms of the costs of the family with ``k`` = 1, (draws, n)."""
        corner, sharpness, decline = (column[:, None] for column in points.T)
        power = np.exp(np.maximum(sharpness, 0.0))
        overlap = np.logaddexp(0.0, power * (logs - corner)) / power
        rise = np.where(decline > self._flat_from, 0.0, np.exp(logs - decline))
        return np.asarray(overlap + np.log1p(rise))

    def _likelihoods(self, points: Array) -> Array:
        """Return the log-likelihoods of the points with ``k`` integrated out, (draws,)."""
        white = (self._values - self._shapes(points, self._logs)) @ self._whitener.T
        level = white @ self._ones / self._weight
        rest = white - level[:, None] * self._ones
        return np.asarray(-0.5 * np.einsum("ij,ij->i", rest, rest))

    def _posterior(self) -> Array:
        """Draw parameters, (draws, 3), by adaptive tempering; the prior is uniform in the logs."""
        points = self._rng.uniform(self._low, self._high, size=(_DRAWS, 3))
        likelihoods = self._likelihoods(points)
        heat = 0.0
        while heat < 1.0:
            step = _step(likelihoods, 1.0 - heat)
            heat += step
            most = float(likelihoods.max())
            weights = np.exp(step * (likelihoods - most))
            self.evidence += step * most + math.log(weights.mean())
            chosen = self._rng.choice(_DRAWS, size=_DRAWS, p=weights / weights.sum())
            points, likelihoods = points[chosen], likelihoods[chosen]
            for _ in range(_MOVES):
                points, likelihoods = self._moved(points, likelihoods, heat)
        return points

    def _moved(self, points: Array, likelihoods: Array, heat: float) -> tuple[Array, Array]:
        """Do a Metropolis step with each point; the best stride in 3-D is 2.38 / sqrt(3)."""
        root = np.linalg.cholesky(np.cov(points.T) + 1e-12 * np.eye(3))
        stride = self._rng.choice([0.3, 1.374], size=(_DRAWS, 1))
        tried = points + stride * (self._rng.normal(size=points.shape) @ root.T)
        inside = np.all((tried >= self._low) & (tried <= self._high), axis=1)
        found = np.where(inside, self._likelihoods(np.clip(tried, self._low, self._high)), -np.inf)
        taken = np.log(self._rng.uniform(size=_DRAWS)) < heat * (found - likelihoods)
        return np.where(taken[:, None], tried, points), np.where(taken, found, likelihoods)


def _step(likelihoods: Array, most: float) -> float:
    """Return the largest tempering step, at most ``most``, with enough effective samples.

    The effective sample size must be at least half of the number of points.
    """

    def count(step: float) -> float:
        weights = np.exp(step * (likelihoods - likelihoods.max()))
        return float(weights.sum() ** 2 / (weights**2).sum())

    if count(most) >= _DRAWS / 2:
        return most
    low, high = 0.0, most
    for _ in range(30):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if count(middle) >= _DRAWS / 2 else (low, middle)
    return max(low, 1e-6 * most)
