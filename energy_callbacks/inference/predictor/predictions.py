"""Makes predictions with intervals of values on logarithmic scales."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from energy_callbacks.inference.predictor import rows
from energy_callbacks.inference.predictor.rows import Array
from energy_callbacks.inference.records import (
    IDENTITY,
    Configuration,
    Interval,
    Prediction,
    Source,
    Tenant,
)

_NONE = Interval(0.0, 0.0, 0.0)


def of(
    configurations: Sequence[Configuration],
    found: Mapping[str, Array],
    source: Source,
    identity: Mapping[str, Any],
) -> list[Prediction]:
    """Return predictions.

    Args:
        configurations: what is predicted.
        found: values and half widths of intervals in columns, by field of ``Estimate``.
        source: where the windows come from.
        identity: ``gpu_name``, ``dataset`` and ``mode`` of the windows.
    """
    origin = {"source": source, **{name: identity[name] for name in IDENTITY}}
    rates = iter(_exponentials(found["rate"]))
    others = {
        name: _exponentials(one) if name == "power" else _percents(one)
        for name, one in found.items()
        if name != "rate"
    }
    return [
        _prediction(
            configuration,
            {tenant: next(rates) for tenant, _ in rows.groups(configuration)},
            {name: each[at] for name, each in others.items()},
            origin,
        )
        for at, configuration in enumerate(configurations)
    ]


def _prediction(
    configuration: Configuration,
    rates: Mapping[Tenant, Interval],
    others: Mapping[str, Interval],
    origin: Mapping[str, Any],
) -> Prediction:
    tenants = tuple(rates[tenant] for tenant in configuration.tenants)
    latencies = {
        tenant: Interval(*(1e3 * tenant.batch / rate[at] for at in (0, 2, 1)))
        for tenant, rate in rates.items()
    }
    return Prediction(
        throughput_per_s=_total(tenants),
        power_w=others["power"],
        tenant_throughputs_per_s=tenants,
        tenant_latencies_ms=tuple(latencies[tenant] for tenant in configuration.tenants),
        sm_util_pct=others.get("sm_util"),
        mem_util_pct=others.get("mem_util"),
        **origin,
    )


def _exponentials(columns: Array) -> list[Interval]:
    values, factors = np.exp(columns).T
    return _intervals(values, values / factors, values * factors)


def _percents(columns: Array) -> list[Interval]:
    center, half = 100 * columns.T
    return _intervals(*np.clip([center, center - half, center + half], 0, 100))


def _intervals(*bounds: Array) -> list[Interval]:
    return [Interval(*one) for one in zip(*(each.tolist() for each in bounds), strict=True)]


def _total(tenants: Sequence[Interval]) -> Interval:
    """Return the sum; errors of tenants add up, because contention is common to them."""
    return Interval(*map(sum, zip(*tenants, strict=True))) if tenants else _NONE
