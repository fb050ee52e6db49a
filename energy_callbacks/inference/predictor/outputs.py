"""What is predicted: rates of tenants, power, and utilisations."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from energy_callbacks.inference.predictor import physics, rows
from energy_callbacks.inference.predictor.physics import Estimate, Scales
from energy_callbacks.inference.predictor.rows import Array, Rows
from energy_callbacks.inference.records import MeasuredWindow

# Units between a tenant with equal neighbours and one with very different ones. What a tenant loses
# by its neighbours hardly depends on which they are: in published measurements of 750 pairs of
# models on a V100, it is 10 % on average and 17 % at the 95 % quantile.
_OTHERS: Final = 0.3
# Units between the rates of two models, which makes their residuals independent.
_APART: Final = 1e3


class Output(NamedTuple):
    """One kind of predicted values.

    Attributes:
        kind: the field of ``Estimate`` that has it.
        values: (m,) outputs of the physical model.
        slopes: (m, parameters) its derivatives.
        features: (m, features) where the values are, for the smooth residual.
    """

    kind: str
    values: Array
    slopes: Array
    features: Array


def of(theta: Array, scales: Scales, made: Rows, models: int) -> list[Output]:
    """Return everything that is predicted.

    Args:
        theta: parameters of the physical model.
        scales: their units.
        made: configurations.
        models: number of models.
    """
    values, slopes = physics.jacobian(theta, scales, made)
    of_groups, of_rows = _features(made, models, scales.power_w)
    features = (of_groups, of_rows, of_rows, of_rows)
    each = zip(Estimate._fields, values, slopes, features, strict=True)
    return [Output(*one) for one in each]


def measured(windows: Sequence[MeasuredWindow]) -> Estimate:
    """Return what was measured, as the physical model gives it; unknown values are NaN."""
    return Estimate(
        np.log(rows.tenant_rates(windows)),
        np.log(rows.numbers(one.power_mean_w for one in windows)),
        rows.numbers(one.sm_util_pct for one in windows) / 100,
        rows.numbers(one.mem_util_pct for one in windows) / 100,
    )


def _features(made: Rows, models: int, power_w: float) -> tuple[Array, Array]:
    """Return features of groups and of configurations, each about 1 to 3 wide.

    A batch that is seven times larger, a share that is a third, three times the tenants, half of
    the largest power and half of the reference clock are one unit. A configuration of two models is
    a unit away from those of one model, so that the power of one says little about the other's.
    """
    own = np.column_stack([np.log(made.batch) / 2, np.log(made.share)])
    mean = np.column_stack([made.means(column) for column in own.T])
    tenants = np.log1p(made.sums(np.ones(len(made.row))))
    limits = np.nan_to_num(made.limit_w) / power_w * 2
    common = np.column_stack([tenants, limits, made.clock * 2])
    is_model = np.eye(models)[made.model]
    parts = np.column_stack([made.means(column) for column in is_model.T])
    others = np.column_stack([mean[made.row] - own, parts[made.row]])
    of_groups = [own, common[made.row], _OTHERS * others, _APART * is_model]
    return np.column_stack(of_groups), np.column_stack([mean, common, 2 * parts])
