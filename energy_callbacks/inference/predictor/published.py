"""The published predictor of PctoDL, for comparison: physical forms, corrected by boosted trees.

It is written from the published equations, for equal processes of one model, with these changes:

- The forms use predicted utilisations when they are fitted, as they do when they predict.
- The reference clock is the highest that was measured, and throughput and power at it are those
  without a clock. One branch over the clock holds for all configurations.
- The target is the mean power, as everywhere in this package, and its static part is constant.

Figures of the model, such as its number of parameters, are constant and left out of the trees.
"""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from energy_callbacks.core import extras
from energy_callbacks.inference.predictor.rows import Array
from energy_callbacks.inference.records import Configuration, MeasuredWindow

_TREES: Final = 100  # number and depth as published
_DEPTH: Final = 5
_Form = Callable[[Array, Array], Array]


def trees(features: Array, targets: Array) -> Callable[[Array], Array]:
    """Return the predictions of boosted trees that were fitted.

    Raises:
        MissingExtraError: without the extra ``powercap``.
    """
    with extras.requires("sklearn", extra="powercap"):
        from sklearn.ensemble import GradientBoostingRegressor
    made = GradientBoostingRegressor(n_estimators=_TREES, max_depth=_DEPTH, random_state=0)
    predict: Callable[[Array], Array] = made.fit(features, targets).predict
    return predict


class PublishedPredictor:
    """Fits windows of equal processes of one model, with both utilisations.

    Args:
        windows: measurements.
    """

    def __init__(self, windows: Sequence[MeasuredWindow]) -> None:
        points = _points([one.configuration for one in windows])
        sm, memory, rate, power = (
            np.array([getattr(one, name) for one in windows], dtype=float)
            for name in ("sm_util_pct", "mem_util_pct", "throughput_per_s", "power_mean_w")
        )
        clocks = points[:, 3]
        self._lowest, self._highest = clocks.min(initial=np.inf, where=clocks > 0), clocks.max()
        alone, several = points[:, 2] == 1, points[:, 2] > 1
        self._sm = _fitted(_sm_alone, [1.0, 0.5, 0.3], points[alone], sm[alone])
        self._limit = _fitted(self._sm_form, [1.0, 0.0, 1.0], points[several], sm[several])
        self._memory = _fitted(_memory_alone, [0.0, 0.5, 0.1, 0.1], points[alone], memory[alone])
        start = [0.1, 1.0, 10.0, 0.1, 0.0, 32.0]
        self._more = _fitted(self._memory_form, start, points[several], memory[several])
        at = self._relative(points) == 1
        reference = points[at]
        self._sm_trees = trees(self._sm_features(reference), sm[at])
        self._memory_trees = trees(self._memory_features(reference), memory[at])
        self._factors = np.linalg.lstsq(self._rate_columns(reference), rate[at], rcond=None)[0]
        self._rate_trees = trees(self._rate_features(reference), rate[at])
        self._power_trees = trees(self._power_features(reference), power[at])
        self._rate_clock = _fitted(self._rates, [0.3, 0.5], points, rate)
        self._power_clock = _fitted(self._powers, [0.3, 1.2], points, power)

    def predict(self, configurations: Sequence[Configuration]) -> tuple[Array, Array]:
        """Return samples per second and mean power in W of configurations."""
        points = _points(configurations)
        return self._rates(self._rate_clock, points), self._powers(self._power_clock, points)

    def _relative(self, points: Array) -> Array:
        """Return the position between the lowest and the highest clock, from 0 to 1."""
        if not self._lowest < self._highest:
            return np.ones(len(points))
        clock = np.where(points[:, 3] > 0, points[:, 3], self._highest)
        relative: Array = np.clip((clock - self._lowest) / (self._highest - self._lowest), 0, 1)
        return relative

    def _over_clock(self, p: Array, points: Array, reference: Array) -> Array:
        """Return ``start + (reference - start) * x ** exponent``, which is the reference at 1."""
        start = reference * np.clip(p[0], 0, 1)
        value: Array = start + (reference - start) * self._relative(points) ** abs(p[1])
        return value

    def _rates(self, p: Array, points: Array) -> Array:
        return self._over_clock(p, points, self._rate_trees(self._rate_features(points)))

    def _powers(self, p: Array, points: Array) -> Array:
        return self._over_clock(p, points, self._power_trees(self._power_features(points)))

    def _sm_form(self, p: Array, points: Array) -> Array:
        """Return the utilisation of several equal processes, which approaches a limit."""
        alone = np.clip(_sm_alone(self._sm, points), 1e-3, 100)
        at_40 = _sm_alone(self._sm, np.column_stack([points[:, 0], np.full(len(points), 40.0)]))
        excess = np.clip((alone - at_40) / np.maximum(100 - at_40, 1e-3), 0, 1)
        line, kappa = p[0] * alone + p[1], abs(p[2]) + 1e-3
        limit = line + (100 - line) * np.tanh(kappa * excess) / np.tanh(kappa)
        # The published form becomes negative if the limit is below the utilisation of one process.
        limit = np.maximum(limit, alone)
        several = limit * (1 - (1 - alone / limit) ** points[:, 2])
        return np.where(points[:, 2] > 1, several, alone)

    def _memory_form(self, p: Array, points: Array) -> Array:
        batch, share, count = points[:, 0], points[:, 1] / 100, points[:, 2]
        bend = p[5]
        at_bend = p[0] * bend + p[1] - p[2] * (1 - np.exp(-abs(p[3]) * bend))
        above = p[2] * (1 - np.exp(-abs(p[3]) * batch)) + p[4] * (batch - bend) + at_bend
        factor = np.where(batch <= bend, p[0] * batch + p[1], above)
        total: Array = _memory_alone(self._memory, points) + share * factor * (count - 1)
        return total

    def _sm_features(self, points: Array) -> Array:
        alone = _sm_alone(self._sm, points)
        return _columns(points, self._sm_form(self._limit, points), alone * points[:, 2])

    def _memory_features(self, points: Array) -> Array:
        alone = _memory_alone(self._memory, points)
        return _columns(points, self._memory_form(self._more, points), alone * points[:, 2])

    def _rate_columns(self, points: Array) -> Array:
        memory = self._memory_trees(self._memory_features(points))
        return np.column_stack([np.log(points[:, 0]) * memory, memory])

    def _rate_features(self, points: Array) -> Array:
        columns = self._rate_columns(points)
        return _columns(points, columns @ self._factors, columns[:, 1])

    def _power_features(self, points: Array) -> Array:
        return np.column_stack([
            self._sm_trees(self._sm_features(points)),
            self._memory_trees(self._memory_features(points)),
            points[:, [2, 1]],
        ])  # fmt: skip


def _points(configurations: Sequence[Configuration]) -> Array:
    """Return batch, share in percent, number of processes and clock (0: none) of each.

    Raises:
        ValueError: if the processes of a configuration are not equal.
    """
    for one in configurations:
        if len(set(one.tenants)) != 1:
            raise ValueError(f"the published predictor is for equal processes, got {one.tenants}")
    table = [
        (one.tenants[0].batch, one.tenants[0].share_pct, len(one.tenants), one.sm_mhz or 0)
        for one in configurations
    ]
    return np.array(table, dtype=float)


def _columns(points: Array, *priors: Array) -> Array:
    """Return features of trees: priors, then batch, share and number, and their products."""
    batch, share, count = points[:, :3].T
    return np.column_stack([*priors, batch, share, count, batch * count, share * count])


def _sm_alone(p: Array, points: Array) -> Array:
    batch, share = points[:, 0], points[:, 1]
    reach = (abs(p[0]) * np.log(batch) + p[1]) / np.maximum(share, 1) ** abs(p[2])
    alone: Array = 100 * np.tanh(reach)
    return alone


def _memory_alone(p: Array, points: Array) -> Array:
    batch, share = points[:, 0], points[:, 1] / 100
    level = 100 * np.logaddexp(0, p[0]) * share ** abs(p[1])
    alone: Array = level * np.tanh(abs(p[2]) * np.log(batch) + p[3])
    return alone


def _fitted(form: _Form, start: Sequence[float], points: Array, targets: Array) -> Array:
    """Return the parameters of a form with the least squares; the start if there are no points."""
    with extras.requires("scipy", extra="powercap"):
        from scipy.optimize import least_squares
    if not len(points):
        return np.array(start)
    found: Array = least_squares(
        lambda p: form(p, points) - targets, start, method="trf", max_nfev=200
    ).x
    return found
