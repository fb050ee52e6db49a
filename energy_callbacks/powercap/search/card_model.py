"""Models how the time and the energy of a step depend on the setting of a card.

A step is a part of constant duration and power (the host, waits), and kernels. At the relative
clock ``x`` (1 at the highest clock) the duration and the power of a kernel are::

    t(x) = ((1 + (k / x)^q) / (1 + k^q))^(1/q)          a smooth maximum of memory and computation
    P(x) = static + dynamic x^g           if x >= v
           static + dynamic v^(g-1) x     below: the voltage is at its lowest

Below ``x = k`` the computation is slower than the memory. A power limit lowers the clock until the
power of the kernel is at most ``gain`` times the limit, but not below the lowest clock. Kernels
differ in their dynamic power, so that a limit slows down some of them before the others.

The parameters have independent normal prior distributions, most of them in the logarithm. Means and
standard deviations are rounded from measurements that are not in the benchmark: locked clocks of 33
workloads on a V100 (exponent ``g`` 1.9 to 4.3 in 80 % of them; least energy at 0.55 to 0.62 of the
highest clock, which is where the voltage reaches its lowest value). The others are wide.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from energy_callbacks.powercap.settings import KnobRange

Array = npt.NDArray[np.float64]

# Mean and standard deviation of each parameter. "log": the logarithm is normal; "logit": the
# logarithm of the odds is.
_PRIOR: Final = {
    "log duration": (0.0, 0.3),  # of a step, relative to the first window
    "log dynamic": (math.log(0.65), 0.5),  # relative to the highest limit
    "log static": (math.log(0.2), 0.4),
    "log exponent": (math.log(2.8), 0.32),
    "voltage": (0.6, 0.15),
    "log knee": (-0.2, 0.4),
    "log sharpness": (math.log(4.0), 0.6),
    "logit host": (-2.0, 1.5),
    "log spread": (math.log(0.15), 0.7),
    "log gain": (-0.03, 0.03),
    "log lowest": (math.log(0.15), 0.4),
}
PARAMETERS: Final = len(_PRIOR)
# Kernels with low, mean and high power: the nodes of a Gauss-Hermite quadrature have the variance 1
# if all weights are equal.
_KERNELS: Final = math.sqrt(1.5) * np.array([-1.0, 0.0, 1.0])
# Power of a card at full load relative to the highest limit, for knobs without limits in W.
_USUAL_LOAD: Final = 0.75


@dataclass(frozen=True, slots=True)
class CardModel:
    """The model for one knob of one or more equal cards.

    Attributes:
        settings: the knob and its range.
        scale_w: highest power limit of all cards together, W.
    """

    settings: KnobRange
    scale_w: float

    def log_curves(self, normals: Array, values: Array) -> tuple[Array, Array]:
        """Return the logarithms of duration and energy of a step, both (draws, m).

        Durations are relative to the first window, energies to ``scale_w`` times its duration.

        Args:
            normals: (draws, ``PARAMETERS``) parameters as deviations from the mean of the prior,
                in standard deviations.
            values: (m,) settings.
        """
        par = {
            name.split()[-1]: (mean + spread * normals[:, i])[:, None, None]
            for i, (name, (mean, spread)) in enumerate(_PRIOR.items())
        }
        static, exponent = np.exp(par["static"]), np.exp(par["exponent"])
        dynamic = np.exp(par["dynamic"] + np.exp(par["spread"]) * _KERNELS)
        voltage = np.clip(par["voltage"], 0.2, 0.95)
        slope = voltage ** (exponent - 1.0)
        clock = self._clocks(values / self.settings.highest)
        if self.settings.knob == "limit":
            room = np.exp(par["gain"]) * (values / self.settings.highest)[:, None] - static
            room = np.maximum(room / dynamic, 1e-6)
            clock = np.where(room > voltage * slope, room ** (1.0 / exponent), room / slope)
        clock = np.clip(clock, np.exp(par["lowest"]), 1.0)
        load = np.where(clock > voltage, clock**exponent, clock * slope)
        knee, sharp = np.exp(par["knee"]), np.exp(par["sharpness"])
        kernel_s = ((1.0 + (knee / clock) ** sharp) / (1.0 + knee**sharp)) ** (1.0 / sharp)
        host = 1.0 / (1.0 + np.exp(-par["host"][:, :, 0]))
        kernel_j = (kernel_s * (static + dynamic * load)).mean(axis=2)
        step_s = host + (1.0 - host) * kernel_s.mean(axis=2)
        step_j = host * static[:, :, 0] + (1.0 - host) * kernel_j
        if self.settings.knob == "duty":
            asleep_s = step_s * (1.0 / values - 1.0)
            step_s, step_j = step_s + asleep_s, step_j + asleep_s * static[:, :, 0]
        level = par["duration"][:, :, 0]
        return np.log(step_s) + level, np.log(step_j) + level

    def _clocks(self, relative: Array) -> Array:
        """Return the relative clocks, (1, m, 1), if the knob is a clock, else ones."""
        is_clock = self.settings.knob in ("clock", "memory_clock")
        return np.asarray((relative if is_clock else np.ones_like(relative))[None, :, None])


def model_of(settings: KnobRange, *, cards: int, power_w: float) -> CardModel:
    """Return the model for a knob.

    Args:
        settings: the knob and its range.
        cards: number of cards whose energies are added.
        power_w: power of all cards in the first window, W; used if the knob is not the limit.
    """
    is_limit = settings.knob == "limit"
    return CardModel(settings, settings.highest * cards if is_limit else power_w / _USUAL_LOAD)
