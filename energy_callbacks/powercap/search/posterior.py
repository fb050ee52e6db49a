"""Draws curves of time and energy over the setting that agree with the measured windows.

The curves are those of the card model (``card_model.py``) with random parameters, plus a deviation
for what the model does not describe (a Gaussian process in the logarithm of the setting). They are
drawn from the posterior distribution (``core.stats.tempered``). Their spread is the uncertainty.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.random import default_rng

from energy_callbacks.core.stats import tempered
from energy_callbacks.core.yielding import yield_if_due
from energy_callbacks.powercap.search.card_model import PARAMETERS, Array, CardModel
from energy_callbacks.powercap.search.trial import Trial

# Number of curves.
_DRAWS: Final = 400
# Standard deviation of the deviations from the model, relative. The clock form of the model misses
# held-out points of 33 workloads on a V100 by 1.3 to 2 %, of which their noise is a part.
_DEVIATION: Final = 0.015
# Correlation length of the deviations, in natural logarithms of the setting: 20 %.
_LENGTH: Final = 0.2
# Least relative standard error of a window: shorter ones are too optimistic about clocks and
# temperatures, which change between windows.
_LEAST_ERROR: Final = 0.002
_JITTER: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Curves:
    """Curves of time and energy.

    Attributes:
        values: (m,) settings in ascending order.
        found: index of the setting that was found.
        step_s: (draws, m) duration of a step, s.
        step_j: (draws, m) energy of a step, J.
    """

    values: Array
    found: int
    step_s: Array
    step_j: Array


def drawn_curves(model: CardModel, trials: Sequence[Trial], values: Array, found: int) -> Curves:
    """Draw curves; they are the same in each call with the same arguments.

    Args:
        model: the card model.
        trials: at least one window.
        values: (m,) settings at which the curves are evaluated.
        found: index of the setting that was found.
    """
    first_s = trials[0].step_s
    scales = np.array([first_s, first_s * model.scale_w])
    posterior = _Posterior(model, trials, scales)
    step_s, step_j = scales[:, None, None] * np.exp(posterior.curves(values))
    return Curves(values, found, step_s, step_j)


class _Posterior:
    """The posterior distribution of the parameters.

    Args:
        model: the card model.
        trials: the windows.
        scales: units of time and energy.
    """

    def __init__(self, model: CardModel, trials: Sequence[Trial], scales: Array) -> None:
        self._model = model
        self._rng = default_rng(0)
        self._at = np.array([trial.value for trial in trials])
        measured = np.array([[trial.step_s, trial.step_j] for trial in trials]).T
        errors = np.array([[trial.step_s_stderr, trial.step_j_stderr] for trial in trials]).T
        errors = np.maximum(errors / measured, _LEAST_ERROR)
        self._logs = np.log(measured / scales[:, None])
        kernel = _kernel(self._at, self._at)
        # (2, windows, windows), for time and energy
        self._precisions = np.linalg.inv(kernel + np.eye(len(trials)) * errors[:, :, None] ** 2)

    def curves(self, values: Array) -> Array:
        """Return logarithms of time and energy at ``values``, (2, draws, m)."""
        normals = self._points()
        curves = np.stack(self._model.log_curves(normals, values))
        residuals = self._residuals(normals)
        across = _kernel(values, self._at)
        for i, precision in enumerate(self._precisions):
            gain = across @ precision
            rest = _kernel(values, values) - gain @ across.T
            root = np.linalg.cholesky(rest + _JITTER * np.eye(len(values)))
            noise = self._rng.normal(size=(len(normals), len(values)))
            curves[i] += residuals[i] @ gain.T + noise @ root.T
            yield_if_due()
        return np.asarray(curves)

    def _residuals(self, normals: Array) -> Array:
        return self._logs[:, None, :] - np.stack(self._model.log_curves(normals, self._at))

    def _likelihoods(self, normals: Array) -> Array:
        rest = self._residuals(normals)
        return np.asarray(-0.5 * np.einsum("iaj,ijk,iak->a", rest, self._precisions, rest))

    def _points(self) -> Array:
        """Draw parameters by adaptive tempering, (draws, ``PARAMETERS``)."""
        points = self._rng.normal(size=(_DRAWS, PARAMETERS))
        return tempered(points, self._likelihoods, self._moved, self._rng, bisections=15)

    def _moved(self, points: Array, likelihoods: Array, heat: float) -> tuple[Array, Array]:
        """Do a Metropolis step with each point; the best stride is 2.38 / sqrt(parameters)."""
        root = np.linalg.cholesky(np.cov(points.T) + _JITTER * np.eye(PARAMETERS))
        stride = self._rng.choice([0.2, 0.7], size=(_DRAWS, 1))
        tried = points + stride * (self._rng.normal(size=points.shape) @ root.T)
        found = self._likelihoods(tried)
        gains = heat * (found - likelihoods) - 0.5 * (tried**2 - points**2).sum(axis=1)
        taken = np.log(self._rng.uniform(size=_DRAWS)) < gains
        return np.where(taken[:, None], tried, points), np.where(taken, found, likelihoods)


def _kernel(left: Array, right: Array) -> Array:
    """Return the covariance of the deviations at two lists of settings."""
    distance = np.abs(np.log(left[:, None] / right[None, :])) / _LENGTH
    return np.asarray(_DEVIATION**2 * np.exp(-distance))
