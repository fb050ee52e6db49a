"""Configurations that could be measured next: new combinations of settings that were measured."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Final

from energy_callbacks.inference.records import Configuration, MeasuredWindow

# Covariances of all pairs are computed: 1000 configurations take 8 MB for each matrix.
_MOST: Final = 1000


def untried(windows: Sequence[MeasuredWindow]) -> list[Configuration]:
    """Return combinations of models with shares, batches, clocks and limits without a window.

    Only equal tenants are combined. What has failed is not proposed again. Of many combinations,
    some hundreds are returned that are spread evenly over all.
    """
    equal = [one for one in windows if len(set(one.configuration.tenants)) == 1]
    tried = [one.configuration for one in equal if one.status == "ok" and one.phase != "static"]
    settings = {replace(one, tenants=()) for one in tried}
    batches = {(one.tenants[0].model, one.tenants[0].batch) for one in tried}
    layouts = {(replace(one.tenants[0], batch=0), len(one.tenants)) for one in tried}
    combined = {
        replace(setting, tenants=(replace(tenant, batch=batch),) * count)
        for setting, (tenant, count), (model, batch) in product(settings, layouts, batches)
        if tenant.model == model
    }
    found = sorted(combined - {one.configuration for one in equal}, key=str)
    return found[:: -(-len(found) // _MOST) or 1]
