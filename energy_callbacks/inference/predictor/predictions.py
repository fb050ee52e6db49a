"""Makes predictions with intervals of values on logarithmic scales."""

from collections.abc import Mapping, Sequence

import numpy as np

from energy_callbacks.inference.predictor import rows
from energy_callbacks.inference.predictor.rows import Array, Rows
from energy_callbacks.inference.records import Configuration, Interval, Prediction, Source

_NONE = Interval(0.0, 0.0, 0.0)


def of(
    configurations: Sequence[Configuration], made: Rows, found: Mapping[str, Array], source: Source
) -> list[Prediction]:
    """Return predictions.

    Args:
        configurations: what is predicted.
        made: the same as arrays.
        found: values and half widths of intervals in columns, by field of ``Estimate``.
        source: where the windows come from.
    """
    rates, others = found["rate"], {name: one for name, one in found.items() if name != "rate"}
    return [
        _prediction(
            configuration,
            rates[made.row == at],
            {name: one[at] for name, one in others.items()},
            source,
        )
        for at, configuration in enumerate(configurations)
    ]


def _prediction(
    configuration: Configuration, rates: Array, parts: Mapping[str, Array], source: Source
) -> Prediction:
    groups = rows.groups(configuration)
    each = {tenant: _exponential(*rate) for (tenant, _), rate in zip(groups, rates, strict=True)}
    tenants = tuple(each[tenant] for tenant in configuration.tenants)
    return Prediction(
        throughput_per_s=_total(tenants),
        power_w=_exponential(*parts["power"]),
        tenant_throughputs_per_s=tenants,
        tenant_latencies_ms=tuple(
            Interval(*(1e3 * tenant.batch / each[tenant][at] for at in (0, 2, 1)))
            for tenant in configuration.tenants
        ),
        sm_util_pct=_percent(parts.get("sm_util")),
        mem_util_pct=_percent(parts.get("mem_util")),
        source=source,
    )


def _exponential(center: float, half: float) -> Interval:
    value, factor = float(np.exp(center)), float(np.exp(half))
    return Interval(value, value / factor, value * factor)


def _total(tenants: Sequence[Interval]) -> Interval:
    """Return the sum; errors of tenants add up, because contention is common to them."""
    return Interval(*map(sum, zip(*tenants, strict=True))) if tenants else _NONE


def _percent(part: Array | None) -> Interval | None:
    if part is None:
        return None
    center, half = 100 * part
    return Interval(*(float(np.clip(x, 0, 100)) for x in (center, center - half, center + half)))
