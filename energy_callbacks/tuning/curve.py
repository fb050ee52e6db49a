"""What a step costs at sizes between those that were tried.

A step has a part that is the same for every size (launching kernels, the optimizer) and a part
that grows with it, and the two overlap somewhat; large sizes may cost a little more again::

    cost of a step = k (1 + (b / r)^p)^(1/p) (1 + b / q)

``p`` = 1 is a sum, large ``p`` the larger of the two, ``r`` where they are equal. Curves that the
trials allow are drawn from the posterior of ``r``, ``p``, ``q`` (sequential Monte Carlo: Del Moral,
Doucet, Jasra, J. R. Stat. Soc. B 68, 2006; ``k`` analytically). What the family cannot follow is
left to a Gaussian process in log size, as strong as the trials ask for: where the family is wrong,
the curves go through the measured points.
"""

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

_DRAWS: Final = 512
_MOVES: Final = 4
# Shares by which curves may leave the family: the first that the trials do not contradict counts.
_STRENGTHS: Final = (0.0, 0.02, 0.06, 0.2, 0.6)
# Of that deviation: in factors of two of the size, how far it is alike.
_OCTAVES: Final = 1.5
# No trial is trusted beyond this: tiles and clocks move a step by as much.
_FLOOR: Final = 0.003


def drawn_curves(sizes: Sequence[int], costs: Array, errors: Array, at: Sequence[int]) -> Array:
    """Curves that the trials allow: logarithms of the cost of a step.

    Args:
        sizes: (n,) that were tried, each once, in rising order.
        costs: (n,) of a step, in any unit.
        errors: (n,) standard errors of ``costs``, as a share.
        at: (m,) sizes to know the cost of.

    Returns:
        (draws, m) natural logarithms; the same for the same arguments.
    """
    logs, targets = np.log(np.asarray(sizes, float)), np.log(np.asarray(at, float))
    values = np.log(costs)
    for strength in _STRENGTHS:
        fit = _Fit(logs, values, np.hypot(errors, _FLOOR), strength, (targets[0], targets[-1]))
        if fit.is_good or strength == _STRENGTHS[-1]:
            break
    return fit.curves(targets)


class _Fit:
    """The posterior of one strength of deviation."""

    def __init__(
        self, logs: Array, values: Array, errors: Array, strength: float, span: tuple[float, float]
    ) -> None:
        self._logs = logs
        self._values = values
        self._strength = strength
        self._dice = np.random.default_rng(0)
        low, high = min(span[0], logs[0]), max(span[1], logs[-1])
        self._low = np.array([low - 1.5, math.log(0.8), high - 0.7])
        self._high = np.array([high + 1.5, math.log(10.0), high + 6.0])
        covariance = self._kernel(logs, logs) + np.diag(errors**2)
        self._whitener = np.linalg.inv(np.linalg.cholesky(covariance))
        self._ones = self._whitener.sum(axis=1)
        self._points, likelihoods = self._posterior()
        freedom = len(logs) - 4
        least = -2.0 * float(likelihoods.max())
        # Two standard deviations of chi squared above its mean.
        self.is_good = freedom < 1 or least <= freedom + 2.0 * math.sqrt(2.0 * freedom)

    def curves(self, targets: Array) -> Array:
        """(draws, m) of them."""
        residuals = self._values - _shapes(self._points, self._logs)
        white = residuals @ self._whitener.T
        weight = float(self._ones @ self._ones)
        level = white @ self._ones / weight
        level = level + self._dice.normal(size=len(level)) / math.sqrt(weight)
        curves = _shapes(self._points, targets) + level[:, None]
        if not self._strength:
            return curves
        cross = self._kernel(targets, self._logs) @ self._whitener.T
        rest = self._kernel(targets, targets) - cross @ cross.T
        roots, axes = np.linalg.eigh(rest)
        spread = axes * np.sqrt(np.clip(roots, 0.0, None))
        white = (residuals - level[:, None]) @ self._whitener.T
        curves += white @ cross.T + self._dice.normal(size=curves.shape) @ spread.T
        return np.asarray(curves)

    def _kernel(self, left: Array, right: Array) -> Array:
        distance = (left[:, None] - right[None, :]) / (_OCTAVES * math.log(2.0))
        return np.asarray(self._strength**2 * np.exp(-0.5 * distance**2))

    def _likelihoods(self, points: Array) -> Array:
        white = (self._values - _shapes(points, self._logs)) @ self._whitener.T
        level = white @ self._ones / (self._ones @ self._ones)
        white = white - level[:, None] * self._ones
        return np.asarray(-0.5 * np.einsum("ij,ij->i", white, white))

    def _posterior(self) -> tuple[Array, Array]:
        """From the prior, flat in logarithms, to the posterior in steps of equal difficulty."""
        points = self._dice.uniform(self._low, self._high, size=(_DRAWS, 3))
        likelihoods = self._likelihoods(points)
        heat = 0.0
        while heat < 1.0:
            step = _step(likelihoods, 1.0 - heat)
            heat += step
            weights = np.exp(step * (likelihoods - likelihoods.max()))
            chosen = self._dice.choice(_DRAWS, size=_DRAWS, p=weights / weights.sum())
            points, likelihoods = points[chosen], likelihoods[chosen]
            for _ in range(_MOVES):
                points, likelihoods = self._moved(points, likelihoods, heat)
        return points, likelihoods

    def _moved(self, points: Array, likelihoods: Array, heat: float) -> tuple[Array, Array]:
        """One step of Metropolis for every point; 2.38 / sqrt(3) is the best stride of three."""
        root = np.linalg.cholesky(np.cov(points.T) + 1e-12 * np.eye(3))
        stride = self._dice.choice([0.3, 1.374], size=(_DRAWS, 1))
        tried = points + stride * (self._dice.normal(size=points.shape) @ root.T)
        inside = np.all((tried >= self._low) & (tried <= self._high), axis=1)
        found = np.where(inside, self._likelihoods(np.clip(tried, self._low, self._high)), -np.inf)
        taken = np.log(self._dice.uniform(size=_DRAWS)) < heat * (found - likelihoods)
        return np.where(taken[:, None], tried, points), np.where(taken, found, likelihoods)


def _shapes(points: Array, logs: Array) -> Array:
    """(draws, n) logarithms of the family with ``k`` = 1."""
    corner, sharpness, decline = (column[:, None] for column in points.T)
    power: Any = np.exp(sharpness)
    overlap = np.logaddexp(0.0, power * (logs - corner)) / power
    return np.asarray(overlap + np.log1p(np.exp(logs - decline)))


def _step(likelihoods: Array, most: float) -> float:
    """How far the temperature may go while half of the points still count."""

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
