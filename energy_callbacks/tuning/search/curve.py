"""Models the cost of a step at any batch size, from trials at some sizes.

The cost of a step with batch size b has a constant part (launching kernels, the optimizer) and a
part that grows with b. The two parts overlap in time to some degree, and large sizes may have an
additional loss, because caches overflow or because power rises faster than throughput::

    cost of a step = k (1 + (b / r)^p)^(1/p) (1 + a b / (b + q))

With ``p`` = 1 the parts add up (no overlap); with a large ``p`` only the larger part counts. At b =
``r`` both parts are equal. At b = ``q`` half of the additional loss ``a`` is reached. ``p`` = 1 and
``a`` = 0 have a positive prior probability. A Gaussian process in the logarithm of the size models
deviations from this family of curves. It is rough (an Ornstein-Uhlenbeck process), as the edges of
tiles are. The strength of the deviations is estimated from the trials, so that the curves follow
the measured points even if the family does not fit.

Two trials of the same size differ by more than the error that each of them states. The variance of
a trial has two parts::

    variance = (factor * stated error)^2 + spread^2

``spread`` is the same for all sizes: clock rates and temperatures change between trials. The stated
error assumes that the blocks of a trial are independent. If steps wait for the host, its speed also
changes between trials, so that the mean of a trial varies by a multiple of this error, the
``factor``. The factor does not matter for sizes whose blocks do not vary. Both are estimated from
repeats, and from the distances of the trials of all sizes from the curve. Repeats differ by this
variance alone, so they separate it from deviations of the curve.

Curves are drawn from the posterior distribution of all parameters (``core.stats.tempered`` for
``r``, ``p``, ``q`` and ``a``). ``k``, the Gaussian process, its strength, ``factor`` and ``spread``
are integrated analytically.
"""

import math
from collections.abc import Sequence
from itertools import product
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from energy_callbacks.core.stats import tempered

Array = npt.NDArray[np.float64]

# Number of curves.
_DRAWS: Final = 400
# Possible strengths (relative sizes) of the deviations, with equal prior probability.
_STRENGTHS: Final = (0.0, 0.03, 0.12)
# Possible values of ``spread`` (relative), with equal prior probability. On an H200, large sizes
# measured twice differed by 0.1 to 1 %, and sizes that wait for the host by 7 % (docs/h200.md).
_SPREADS: Final = (0.003, 0.006, 0.012, 0.025, 0.05, 0.1)
# Correlation length of the deviations, in octaves (factors of two) of the size.
_OCTAVES: Final = 3.0
# The additional loss ``a`` is 0 if log a is below this.
_NO_LOSS: Final = math.log(0.01)
# Variance that is added to that of the deviations, as a fraction, against rounding errors.
_JITTER: Final = 1e-8


class Curves(NamedTuple):
    """Curves from the posterior distribution.

    Attributes:
        costs: (draws, sizes) natural logarithms of the cost of a step.
        factors: (draws,) factor by which errors are larger than trials state.
        spreads: (draws,) relative standard deviation between trials, the same for all sizes.
    """

    costs: Array
    factors: Array
    spreads: Array


def drawn_curves(
    sizes: Sequence[int],
    costs: Array,
    errors: Array,
    at: Sequence[int] = (),
    factors: Sequence[float] = (1.0,),
) -> Curves:
    """Draw curves from the posterior distribution, given the trials.

    Args:
        sizes: (n,) sizes of the trials; a size may occur several times.
        costs: (n,) costs of a step, in any unit.
        errors: (n,) relative standard errors of ``costs`` within each trial.
        at: (m,) sizes at which the curves are evaluated.
        factors: possible values of ``factor``, with equal prior probability.

    Returns:
        The curves; they are the same in each call with the same arguments.
    """
    logs, targets = np.log(np.asarray(sizes, float)), np.log(np.asarray(at, float))
    return _Posterior(logs, np.log(costs), errors, targets, factors).curves()


class _Posterior:
    """The posterior distribution of the curves.

    A *model* is a combination of a strength of the deviations, a ``spread`` and a ``factor``.
    """

    def __init__(
        self, logs: Array, values: Array, errors: Array, targets: Array, factors: Sequence[float]
    ) -> None:
        self._logs = logs
        self._values = values
        self._targets = targets
        self._rng = np.random.default_rng(0)
        everywhere = np.concatenate([logs, targets])
        low, high = everywhere.min(), everywhere.max()
        # The parameters are log r, log p, log q and log a. If log p is negative, p is 1. If log a
        # is below ``_NO_LOSS``, a is 0.
        self._low = np.array([low - 1.5, -1.0, low - 0.7, 2.0 * _NO_LOSS])
        self._high = np.array([high + 1.5, math.log(8.0), high + 1.5, 0.0])
        self._models = list(product(_STRENGTHS, _SPREADS, factors))
        covariances = [
            _kernel(strength, logs, logs) + np.diag((factor * errors) ** 2 + spread**2)
            for strength, spread, factor in self._models
        ]
        self._precisions = np.linalg.inv(covariances)
        self._pulls = self._precisions.sum(axis=2)
        self._weights = self._pulls.sum(axis=1)
        log_dets = np.linalg.slogdet(covariances).logabsdet
        self._base = -0.5 * (log_dets + np.log(self._weights))

    def curves(self) -> Curves:
        """Draw curves."""
        points = self._points()
        chances = self._by_model(points)
        chances = np.exp(chances - chances.max(axis=1, keepdims=True)).cumsum(axis=1)
        drawn = self._rng.uniform(size=(_DRAWS, 1)) * chances[:, -1:]
        models = (chances < drawn).sum(axis=1)
        costs = self._shapes(points, self._targets)
        residuals = self._values - self._shapes(points, self._logs)
        for model in np.unique(models):
            rows = models == model
            costs[rows] += self._level_and_deviations(model, residuals[rows])
        _, spreads, factors = np.array(self._models)[models].T
        return Curves(costs, factors, spreads)

    def _level_and_deviations(self, model: int, residuals: Array) -> Array:
        """Draw log k plus the Gaussian process at the targets, (draws, m)."""
        (strength, *_), targets = self._models[model], self._targets
        precision, weight = self._precisions[model], self._weights[model]
        level = residuals @ self._pulls[model] / weight
        level = level + self._rng.normal(size=len(residuals)) / math.sqrt(weight)
        if not strength:
            return np.broadcast_to(level[:, None], (len(level), len(targets)))
        gain = _kernel(strength, targets, self._logs) @ precision
        spread = _kernel(strength, targets, targets) - gain @ _kernel(strength, self._logs, targets)
        root = np.linalg.cholesky(spread + _JITTER * strength**2 * np.eye(len(targets)))
        noise = self._rng.normal(size=(len(residuals), len(targets)))
        drawn = level[:, None] + (residuals - level[:, None]) @ gain.T + noise @ root.T
        return np.asarray(drawn)

    def _shapes(self, points: Array, logs: Array) -> Array:
        """Return the logarithms of the costs of the family with ``k`` = 1, (draws, n)."""
        corner, sharpness, middle, loss = (column[:, None] for column in points.T)
        power = np.exp(np.maximum(sharpness, 0.0))
        overlap = np.logaddexp(0.0, power * (logs - corner)) / power
        most = np.where(loss > _NO_LOSS, np.exp(loss), 0.0)
        return np.asarray(overlap + np.log1p(most / (1.0 + np.exp(middle - logs))))

    def _by_model(self, points: Array) -> Array:
        """Return the log-likelihoods with ``k`` integrated out, (draws, models)."""
        residuals = self._values - self._shapes(points, self._logs)
        pairs = residuals[:, :, None] * residuals[:, None, :]
        squares = np.tensordot(pairs, self._precisions, ((1, 2), (1, 2)))
        levels = residuals @ self._pulls.T
        return np.asarray(self._base - 0.5 * (squares - levels**2 / self._weights))

    def _likelihoods(self, points: Array) -> Array:
        """Return the log-likelihoods, averaged over the models, (draws,)."""
        return np.asarray(np.logaddexp.reduce(self._by_model(points), axis=1))

    def _points(self) -> Array:
        """Draw parameters, (draws, 4), by adaptive tempering; the prior is uniform in the logs."""
        points = self._rng.uniform(self._low, self._high, size=(_DRAWS, 4))
        return tempered(points, self._likelihoods, self._moved, self._rng, bisections=30)

    def _moved(self, points: Array, likelihoods: Array, heat: float) -> tuple[Array, Array]:
        """Do a Metropolis step with each point; the best stride in 4-D is 2.38 / sqrt(4)."""
        root = np.linalg.cholesky(np.cov(points.T) + 1e-12 * np.eye(4))
        stride = self._rng.choice([0.3, 1.19], size=(_DRAWS, 1))
        tried = points + stride * (self._rng.normal(size=points.shape) @ root.T)
        inside = np.all((tried >= self._low) & (tried <= self._high), axis=1)
        found = np.where(inside, self._likelihoods(np.clip(tried, self._low, self._high)), -np.inf)
        taken = np.log(self._rng.uniform(size=_DRAWS)) < heat * (found - likelihoods)
        return np.where(taken[:, None], tried, points), np.where(taken, found, likelihoods)


def _kernel(strength: float, left: Array, right: Array) -> Array:
    """Return the covariance of the deviations at two lists of logarithms of sizes."""
    distance = np.abs(left[:, None] - right[None, :]) / (_OCTAVES * math.log(2.0))
    return np.asarray(strength**2 * np.exp(-distance))
