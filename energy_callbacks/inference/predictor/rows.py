"""Arrays of configurations and of what was measured, as the physical model needs them."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from energy_callbacks.inference.records import Configuration, MeasuredWindow, Tenant

Array = np.ndarray[Any, np.dtype[Any]]
Indices = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Configurations; equal tenants of one configuration are one *group*.

    Attributes:
        n: number of configurations.
        row: (groups,) number of the configuration of each group.
        model: (groups,) index of the model.
        count: (groups,) number of tenants.
        share: (groups,) share of each tenant, from 0 to 1.
        batch: (groups,) samples in a batch.
        clock: (n,) clock of the multiprocessors in units of the reference clock; 1 if not set.
        limit_w: (n,) power limit; NaN if not set.
    """

    n: int
    row: Indices
    model: Indices
    count: Array
    share: Array
    batch: Array
    clock: Array
    limit_w: Array

    def sums(self, values: Array) -> Array:
        """Return the sum over the tenants of each configuration; ``values``: (..., groups)."""
        first = values.shape[:-1]
        places = np.arange(0, math.prod(first) * self.n, self.n)[:, None] + self.row
        weights = (values * self.count).ravel()
        sums = np.bincount(places.ravel(), weights, math.prod(first) * self.n)
        return sums.reshape(*first, self.n)

    def means(self, values: Array) -> Array:
        """Return the mean over the tenants of each configuration, weighted by their shares."""
        weights = self.sums(self.share)
        total = self.sums(self.share * values)
        return np.divide(total, weights, out=np.zeros(self.n), where=weights > 0)


def groups(configuration: Configuration) -> list[tuple[Tenant, int]]:
    """Return the different tenants of a configuration, and how many there are of each."""
    return [*Counter(configuration.tenants).items()]


def of(
    configurations: Sequence[Configuration], models: Sequence[str], reference_mhz: float | None
) -> Rows:
    """Return configurations as arrays.

    Args:
        configurations: what was or would be set.
        models: the known models.
        reference_mhz: the clock that counts as 1.

    Raises:
        ValueError: if a model is not among ``models``, if a clock is set and no reference known, or
            if a value is out of range.
    """
    for one in configurations:
        _check(one)
    flat = [(at, *each) for at, one in enumerate(configurations) for each in groups(one)]
    if unknown := {tenant.model for _, tenant, _ in flat} - set(models):
        raise ValueError(
            f"no window of {', '.join(sorted(unknown))} was measured; measured models: "
            f"{', '.join(models)}; profile the model, then fit again"
        )
    clocks = [one.sm_mhz for one in configurations]
    if reference_mhz is None and any(clock is not None for clock in clocks):
        raise ValueError("no clock was measured; leave the clock out, or measure at several clocks")
    return Rows(
        n=len(configurations),
        row=np.array([at for at, _, _ in flat], dtype=np.int64),
        model=np.array([models.index(tenant.model) for _, tenant, _ in flat], dtype=np.int64),
        count=np.array([count for *_, count in flat], dtype=float),
        share=np.array([tenant.share_pct / 100 for _, tenant, _ in flat], dtype=float),
        batch=np.array([tenant.batch for _, tenant, _ in flat], dtype=float),
        clock=np.array([1.0 if one is None else one / (reference_mhz or one) for one in clocks]),
        limit_w=numbers(one.power_limit_w for one in configurations),
    )


def _check(configuration: Configuration) -> None:
    for tenant in configuration.tenants:
        if not (0.0 < tenant.share_pct <= 100.0 and tenant.batch >= 1):
            raise ValueError(
                f"a tenant of {tenant.model} has the share {tenant.share_pct:g} % and the batch "
                f"{tenant.batch}; a share must be above 0 and at most 100 %, a batch at least 1"
            )
    for setting in (configuration.sm_mhz, configuration.power_limit_w):
        if setting is not None and not 0.0 < setting < np.inf:
            raise ValueError(f"a clock or power limit must be positive and finite, got {setting:g}")


def tenant_rates(windows: Sequence[MeasuredWindow]) -> Array:
    """Return samples per second of a tenant of each group, in the order of ``Rows``; else NaN.

    A window of different tenants tells them only if it has the throughput of each tenant.
    """
    return numbers(rate for window in windows for rate in _rates(window))


def _rates(window: MeasuredWindow) -> list[float | None]:
    tenants, each = window.configuration.tenants, window.tenant_throughputs_per_s
    found = groups(window.configuration)
    if len(found) == 1:
        total = window.throughput_per_s
        return [None if total is None else total / len(tenants)]
    if len(each) != len(tenants):
        return [None] * len(found)
    return [
        sum(rate for one, rate in zip(tenants, each, strict=True) if one == tenant) / count
        for tenant, count in found
    ]


def numbers(values: Iterable[float | None]) -> Array:
    """Return an array in which unknown values, and rates and powers of zero, are NaN."""
    return np.array([value or np.nan for value in values], dtype=float)
