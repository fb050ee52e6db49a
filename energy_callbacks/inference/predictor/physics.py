"""The physical model: time and energy of a batch, and what clocks and power limits do to them.

A batch of ``b`` samples of a tenant with the share ``r`` of the multiprocessors takes::

    work = k_sample * b + k_batch + k_square * b ** 2      time on the whole device
    slow = beta / x + 1 - beta                             at the relative clock x
    alone = (host ** p + (work * slow / (r + r0)) ** p) ** (1 / p)
    load = sum of shared * work * slow / alone             over all tenants of the device
    t = alone * (1 + load ** p) ** (1 / p)

The host and the device work at the same time, so the time is a smooth maximum of both; a larger
``p`` is closer to the maximum. The throughput of all tenants ends where what they share is fully
loaded. The power, with the mean ``g`` of the tenants weighted by their power, is::

    P = static + x ** g * (active + sum of (e_batch + e_sample * b) / t(x = 1))

A power limit acts as the clock at which the power equals the limit. At ``x = 1``, ``slow`` is 1.
Utilisations are ``1 - exp(-sum of busy * work * slow / t)``.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from energy_callbacks.core import extras
from energy_callbacks.inference.predictor.rows import Array, Rows


class Parameter(NamedTuple):
    """A parameter and its weak Gaussian prior; its value is the exponential of a number.

    Attributes:
        name: its name in the file.
        mean: mean of the prior of the number.
        std: standard deviation of the prior.
    """

    name: str
    mean: float
    std: float


# In units of the scales below. The priors are wide: one standard deviation is mostly a factor of
# 2.7 to 7. Those of the device were chosen on splits of the data on which no benchmark is judged.
# That of g has the spread over 33 workloads on a V100, where 1.9, 2.8 and 4.3 are the 10, 50 and
# 90 % quantiles, and the median 2.5; published exponents on a normalised clock are 1.0 to 1.3.
OF_MODEL: Final = (
    Parameter("host", 0.0, 2.0),
    Parameter("k_sample", -0.5, 1.0),
    Parameter("k_batch", -2.0, 2.0),
    Parameter("k_square", -5.0, 2.0),
    Parameter("r0", -2.0, 1.0),
    Parameter("p", 0.7, 0.7),  # the exponent is 1 + exp(number)
    Parameter("shared", 0.0, 0.5),
    Parameter("e_batch", -2.0, 1.5),
    Parameter("e_sample", -0.7, 1.0),
    Parameter("beta", 0.0, 1.0),  # exp(number) / (1 + exp(number))
    Parameter("g", 0.9, 0.3),
    Parameter("sm_busy", 0.0, 1.0),
    Parameter("mem_busy", -1.0, 1.0),
)
OF_DEVICE: Final = (
    Parameter("static", -1.0, 0.5),
    Parameter("active", -2.5, 1.0),
    Parameter("limit_factor", 0.0, 0.1),
    Parameter("floor", -1.0, 0.5),
    Parameter("softness", -2.5, 0.7),
)
# Typical errors of the fields of ``Estimate``, in order.
_ERRORS: Final = (0.1, 0.1, 0.3, 0.3)
_STEP: Final = 1e-4  # for derivatives by the parameters, which are logarithms
_SLOWEST: Final = 1e-3  # the least part of the dynamic power that a limit leaves


class Scales(NamedTuple):
    """Typical values, which make the parameters comparable between models and devices.

    Attributes:
        sample_s: (models,) time of a sample.
        batch: (models,) samples in a batch.
        sample_j: (models,) energy of a sample.
        power_w: power of the device.
    """

    sample_s: Array
    batch: Array
    sample_j: Array
    power_w: float


class Estimate(NamedTuple):
    """Outputs of the physical model.

    Attributes:
        rate: (groups,) logarithm of samples per second of one tenant.
        power: (n,) logarithm of the power of the device in W.
        sm_util: (n,) part of the time in which a kernel runs.
        mem_util: (n,) part of the time in which memory is read or written.
    """

    rate: Array
    power: Array
    sm_util: Array
    mem_util: Array


def prior(models: int) -> tuple[Array, Array]:
    """Return means and standard deviations of all parameters: those of models, then the device."""
    table = np.array([(one.mean, one.std) for one in (*OF_MODEL * models, *OF_DEVICE)])
    return table[:, 0], table[:, 1]


def names(models: Sequence[str]) -> list[str]:
    """Return the names of all parameters, in the order of ``prior``."""
    of_models = [f"{model}.{one.name}" for model in models for one in OF_MODEL]
    return [*of_models, *(f"device.{one.name}" for one in OF_DEVICE)]


def estimate(theta: Array, scales: Scales, rows: Rows) -> Estimate:
    """Evaluate the physical model.

    Args:
        theta: (..., parameters) in the order of ``prior``; the estimate has the same first axes.
        scales: units of the parameters.
        rows: configurations.
    """
    of_models, of_device = np.split(np.exp(theta), [-len(OF_DEVICE)], axis=-1)
    device = {one.name: of_device[..., at, None] for at, one in enumerate(OF_DEVICE)}
    table = of_models.reshape(*theta.shape[:-1], -1, len(OF_MODEL))
    of = {one.name: table[..., rows.model, at] for at, one in enumerate(OF_MODEL)}
    times = _Times(of, scales, rows)
    joules = (of["e_batch"] * scales.batch[rows.model] + of["e_sample"] * rows.batch) * (
        scales.sample_j[rows.model]
    )
    parts = joules / times.at(np.ones(rows.n))
    tenants_w = rows.sums(parts)
    exponent = (rows.sums(parts * of["g"]) + 1e-9) / (tenants_w + 1e-9)
    static_w = device["static"] * scales.power_w
    dynamic_w = tenants_w + device["active"] * scales.power_w
    clock = rows.clock
    free_w = static_w + dynamic_w * clock**exponent
    is_limited = ~np.isnan(rows.limit_w)
    limit_w = _soft_max(
        device["limit_factor"] * np.where(is_limited, rows.limit_w, 1.0),
        device["floor"] * scales.power_w,
        device["softness"],
    )
    limited_w = 1 / _soft_max(1 / free_w, 1 / limit_w, device["softness"])
    power_w = np.where(is_limited, limited_w, free_w)
    factor = np.maximum((power_w - static_w) / dynamic_w, _SLOWEST)
    clock = np.where(is_limited, np.minimum(clock, factor ** (1 / exponent)), clock)
    t_s = times.at(clock)
    load = times.work_s * times.slow(clock) / t_s
    power_w = static_w + dynamic_w * np.where(is_limited, factor, clock**exponent)
    return Estimate(
        np.log(rows.batch / t_s),
        np.log(power_w),
        1 - np.exp(-rows.sums(of["sm_busy"] * load)),
        1 - np.exp(-rows.sums(of["mem_busy"] * load)),
    )


def jacobian(theta: Array, scales: Scales, rows: Rows) -> tuple[Estimate, Estimate]:
    """Return the estimate, and its derivatives by all parameters in the last axis."""
    steps = np.vstack([np.zeros(len(theta)), np.eye(len(theta)) * _STEP])
    every = estimate(theta + steps, scales, rows)
    slopes = (((one[1:] - one[0]) / _STEP).T.copy() for one in every)
    return Estimate(*(one[0] for one in every)), Estimate(*slopes)


def fit(measured: Estimate, rows: Rows, scales: Scales, means: Array, stds: Array) -> Array:
    """Return the parameters that explain what was measured and agree with their prior.

    Large errors count less (soft L1), so that one bad window hardly changes the fit.

    Args:
        measured: what was measured; NaN is unknown.
        rows: its configurations.
        scales: units of the parameters.
        means: means of the prior.
        stds: standard deviations of the prior.
    """
    with extras.requires("scipy", extra="powercap"):
        from scipy.optimize import least_squares

    def errors(theta: Array) -> Array:
        found = estimate(theta, scales, rows)
        parts = [
            (of_form - value)[~np.isnan(value)] / std
            for of_form, value, std in zip(found, measured, _ERRORS, strict=True)
        ]
        data = np.concatenate(parts)
        soft = np.sign(data) * np.sqrt(2 * (np.sqrt(1 + data**2) - 1))
        return np.concatenate([soft, (theta - means) / stds])

    found: Array = least_squares(errors, means, x_scale=stds, max_nfev=80).x
    return found


class _Times:
    """Times of batches at any clock."""

    def __init__(self, of: dict[str, Array], scales: Scales, rows: Rows) -> None:
        self._of, self._rows = of, rows
        typical = scales.batch[rows.model]
        unit_s = scales.sample_s[rows.model]
        fixed, squared = of["k_batch"] * typical, of["k_square"] * rows.batch**2 / typical
        self.work_s = (of["k_sample"] * rows.batch + fixed + squared) * unit_s
        self._host_s = of["host"] * typical * unit_s
        self._sharpness = 1 / (1 + of["p"])

    def slow(self, clock: Array) -> Array:
        beta = self._of["beta"] / (1 + self._of["beta"])
        slow: Array = beta / clock[..., self._rows.row] + 1 - beta
        return slow

    def at(self, clock: Array) -> Array:
        work_s = self.work_s * self.slow(clock)
        alone_s = _soft_max(
            self._host_s, work_s / (self._rows.share + self._of["r0"]), self._sharpness
        )
        load = self._rows.sums(self._of["shared"] * work_s / alone_s)[..., self._rows.row]
        return alone_s * _soft_max(np.ones_like(load), load, self._sharpness)


def _soft_max(one: Array, other: Array, softness: Array) -> Array:
    """Return ``(one ** p + other ** p) ** (1 / p)``, where ``p`` is ``1 / softness``."""
    top = np.maximum(one, other)
    return top * (1 + (np.minimum(one, other) / top) ** (1 / softness)) ** softness
