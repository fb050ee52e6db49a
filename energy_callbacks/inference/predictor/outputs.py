"""What is predicted: the rates of each model, the power, and the utilisations."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from energy_callbacks.inference.predictor import physics, rows
from energy_callbacks.inference.predictor.physics import Estimate, Scales
from energy_callbacks.inference.predictor.rows import Array, Indices, Rows
from energy_callbacks.inference.records import MeasuredWindow


class Output(NamedTuple):
    """One kind of predicted values.

    Attributes:
        name: its name in the file: ``rate:`` and the model, ``power``, ``sm_util``, ``mem_util``.
        kind: the field of ``Estimate`` that has it.
        at: (m,) indices in this field.
        values: (m,) what the form gives.
        slopes: (m, parameters) its derivatives.
        features: (m, features) where the values are, for the smooth residual.
    """

    name: str
    kind: str
    at: Indices
    values: Array
    slopes: Array
    features: Array


def of(theta: Array, scales: Scales, made: Rows, models: Sequence[str]) -> list[Output]:
    """Return everything that is predicted; models never share a residual of their rates."""
    values, slopes = physics.jacobian(theta, scales, made)
    of_groups, of_rows = _features(made, len(models), scales.power_w)
    everywhere = np.arange(made.n)
    masks = [
        ("rate", f"rate:{model}", np.flatnonzero(made.model == at))
        for at, model in enumerate(models)
    ]
    masks += [(kind, kind, everywhere) for kind in ("power", "sm_util", "mem_util")]
    return [
        Output(
            name,
            kind,
            at,
            getattr(values, kind)[at],
            getattr(slopes, kind)[at],
            (of_groups if kind == "rate" else of_rows)[at],
        )
        for kind, name, at in masks
    ]


def measured(windows: Sequence[MeasuredWindow]) -> Estimate:
    """Return what was measured, as the form gives it; unknown values are NaN."""
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
    parts = [made.means(2.0 * (made.model == at)) for at in range(models) if models > 1]
    common = np.column_stack([tenants, limits, made.clock * 2, *parts])
    of_groups = np.column_stack([own, mean[made.row] - own, common[made.row]])
    return of_groups, np.column_stack([mean, common])
