"""A Gaussian process over the error of the physical model, together with the model's parameters.

Near the fitted parameters the physical model is linear in them, and their priors are Gaussian. The
measured values are then a Gaussian process with the covariance::

    K = J * prior variances * J^T  +  Matern 5/2 (features)  +  noise

so that the parameters and a smooth residual are estimated together, in closed form. Far from all
measurements, the uncertainty of the parameters makes the intervals wide.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from energy_callbacks.core import extras
from energy_callbacks.core.stats import t_quantile
from energy_callbacks.inference.predictor.rows import Array

# Means and standard deviations of the priors of what the likelihood chooses, all logarithms: the
# standard deviation of the smooth residual, its lengths (features are made to be about 1 to 3
# wide), and the noise of a window.
_AMPLITUDE: Final = (np.log(0.08), 1.0)
_LENGTH: Final = (np.log(0.6), 0.7)
_NOISE: Final = (np.log(0.02), 0.7)
_PART: Final = 0.9  # of the true values that are within an interval
# Fewer measurements do not tell a smooth residual from noise. On the traces of Zeus, a residual
# hardly reduced the error of the throughput with 4 points (13.5 to 13.2 %), and more with 6 (11.0
# to 9.9 %).
_LEAST: Final = 6


@dataclass(frozen=True, kw_only=True)
class Residual:
    """The process after measurements.

    Attributes:
        features: (n, features) of the measurements.
        jacobian: (n, parameters) of the physical model at the measurements.
        variances: (parameters,) of the prior.
        targets: (n,) measured values minus the linear model at the mean of the prior.
        hyper: logarithms of amplitude, lengths and noise.
    """

    features: Array
    jacobian: Array
    variances: Array
    targets: Array
    hyper: Array

    def predict(self, features: Array, jacobian: Array) -> tuple[Array, Array]:
        """Return (m,) values to add to the physical model, and half widths of intervals."""
        cross = self._cross(features, jacobian)
        mean = cross @ self._inverse @ self.targets
        noise = np.exp(2 * self.hyper[-1])
        prior = (jacobian**2) @ self.variances + np.exp(2 * self.hyper[0]) + noise
        variances = prior - np.einsum("ij,jk,ik->i", cross, self._inverse, cross)
        return mean, self.widening * np.sqrt(np.maximum(variances, noise))

    def gain(self, features: Array, jacobian: Array) -> Array:
        """Return by how much a measurement at each place reduces the sum of all variances."""
        cross = self._cross(features, jacobian)
        prior = (jacobian * self.variances) @ jacobian.T + _matern(features, features, self.hyper)
        covariance = prior - cross @ self._inverse @ cross.T
        gain: Array = (covariance**2).sum(0) / (np.diag(covariance) + np.exp(2 * self.hyper[-1]))
        return gain

    @cached_property
    def left_out(self) -> Array:
        """(n,) errors if each measurement is predicted from all others, in standard deviations."""
        weights = self._inverse @ self.targets
        errors: Array = weights / np.sqrt(np.diag(self._inverse))
        return errors

    @cached_property
    def widening(self) -> float:
        """Half of a 90 % interval, in standard deviations.

        It is that of Student's distribution, with half as many degrees of freedom as there are
        measurements, because the parameters use up the other half. It is larger if the
        measurements that were left out, one at a time, had larger errors: the quantile of conformal
        prediction.
        """
        errors = np.sort(np.abs(self.left_out))
        at = min(len(errors), int(np.ceil(_PART * (len(errors) + 1)))) - 1
        return float(max(t_quantile((1 + _PART) / 2, max(len(errors) / 2, 1)), errors[at]))

    @cached_property
    def _inverse(self) -> Array:
        inverse: Array = np.linalg.inv(self._measured_covariance(self.hyper))
        return inverse

    def _cross(self, features: Array, jacobian: Array) -> Array:
        linear: Array = (jacobian * self.variances) @ self.jacobian.T
        return linear + _matern(features, self.features, self.hyper)

    def _measured_covariance(self, hyper: Array) -> Array:
        noise = np.exp(2 * hyper[-1]) * np.eye(len(self.targets))
        smooth = _matern(self.features, self.features, hyper)
        total: Array = self._linear + smooth + noise
        return total

    @cached_property
    def _linear(self) -> Array:
        linear: Array = (self.jacobian * self.variances) @ self.jacobian.T
        return linear

    def lists(self) -> dict[str, Any]:
        """Return the arrays as lists for a file, except for the variances."""
        names = ("features", "jacobian", "targets", "hyper")
        return {name: getattr(self, name).tolist() for name in names}

    def misfit(self, hyper: Array) -> float:
        """Return the negative logarithm of the posterior of amplitude, lengths and noise."""
        means, stds = _prior(self.features.shape[1])
        prior = (((hyper - means) / stds) ** 2).sum() / 2
        try:
            factor = np.linalg.cholesky(self._measured_covariance(hyper))
        except np.linalg.LinAlgError:
            return float(prior) + 1e9
        white = np.linalg.solve(factor, self.targets)
        return float(prior + white @ white / 2 + np.log(np.diag(factor)).sum())


def fitted(features: Array, jacobian: Array, variances: Array, targets: Array) -> Residual:
    """Return the process whose amplitude, lengths and noise explain the measurements best."""
    with extras.requires("scipy", extra="powercap"):
        from scipy.optimize import minimize
    means, _ = _prior(features.shape[1])
    known: dict[str, Any] = {
        "features": features,
        "jacobian": jacobian,
        "variances": variances,
        "targets": targets,
    }
    made = Residual(**known, hyper=means)
    if len(targets) < _LEAST:
        return made
    # Lengths of features that do not vary are not informed by the data: the prior decides.
    varies = np.array([True, *(np.ptp(features, axis=0) > 0), True])

    def misfit(chosen: Array) -> float:
        hyper = means.copy()
        hyper[varies] = chosen
        return made.misfit(hyper)

    found = minimize(misfit, means[varies], method="L-BFGS-B", options={"maxiter": 40})
    hyper = means.copy()
    hyper[varies] = found.x
    return Residual(**known, hyper=hyper)


def _prior(features: int) -> tuple[Array, Array]:
    table = np.array([_AMPLITUDE, *[_LENGTH] * features, _NOISE])
    return table[:, 0], table[:, 1]


def _matern(one: Array, other: Array, hyper: Array) -> Array:
    with extras.requires("scipy", extra="powercap"):
        from scipy.spatial.distance import cdist
    lengths = np.exp(hyper[1:-1]) / np.sqrt(5)
    distance = cdist(one / lengths, other / lengths)
    kernel: Array = np.exp(2 * hyper[0] - distance) * (1 + distance + distance**2 / 3)
    return kernel
