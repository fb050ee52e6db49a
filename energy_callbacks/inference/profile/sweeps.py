"""Lists the configurations of a sweep."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from energy_callbacks.inference.records import Configuration, Mode, Phase, Tenant, most_tenants

# Batch sizes of sweeps over shares, if none are given. With larger batches for larger shares, the
# tenants neither starve nor wait for memory (PctoDL's rule for the batch of a share).
_BATCHES: Final = (4, 8, 16, 32, 64, 128, 256)
_LEAST_PER_SHARE: Final = 0.8
_MOST_PER_SHARE: Final = 6.4
# Shares of sweeps over clocks, and of tenants that wait, if none are given: their sum is 100.
_FEW: Final = (100.0, 50.0, 25.0)
_FEW_BATCHES: Final = (8, 16, 32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A configuration to measure.

    Attributes:
        configuration: the configuration.
        phase: kind of measurement.
        mode: inference or training.
    """

    configuration: Configuration
    phase: Phase
    mode: Mode


def single(models: Sequence[str], shares: Sequence[float], batches: Sequence[int]) -> Configuration:
    """Return one configuration; a list of one value counts for all tenants.

    Raises:
        ValueError: if the lists have different lengths, or if the shares exceed 100 %.

    >>> both = single(["resnet50"], [50.0, 25.0], [16])
    >>> [(one.model, one.share_pct, one.batch) for one in both.tenants]
    [('resnet50', 50.0, 16), ('resnet50', 25.0, 16)]
    """
    count = max(len(models), len(shares), len(batches))
    lengths = [len(one) for one in (models, shares, batches)]
    if not set(lengths) <= {1, count}:
        raise ValueError(
            "models, shares and batches must be one value, or one for each tenant, got "
            f"{lengths[0]}, {lengths[1]} and {lengths[2]} values"
        )
    tenants = [
        Tenant(
            model=models[index % len(models)],
            share_pct=shares[index % len(shares)],
            batch=batches[index % len(batches)],
        )
        for index in range(count)
    ]
    given = [one.share_pct for one in tenants]
    if sum(given) > 100.0 + 1e-9 or not all(share > 0.0 for share in given):
        raise ValueError(f"shares must be positive and at most 100 together, got {given}")
    _check("batches", batches)
    return Configuration(tenants=tuple(tenants))


def anchor(
    models: Sequence[str],
    *,
    share_step: float,
    batches: Sequence[int] | None = None,
    counts: Sequence[int] | None = None,
) -> list[Configuration]:
    """Return configurations of equal tenants over shares, batches and numbers of tenants.

    Args:
        models: names of the models; each has configurations of its own.
        share_step: the smallest share, and the difference between two shares, percent.
        batches: batch sizes; ``None`` for powers of two that suit the share.
        counts: numbers of tenants; ``None`` for powers of two and the largest number that fits.
    """
    if not 0.0 < share_step <= 100.0:
        raise ValueError(
            f"the step between shares must be above 0 and at most 100 %, got {share_step:g}"
        )
    _check("batches", batches)
    _check("numbers of tenants", counts)
    shares = np.arange(share_step, 100.0 + 1e-9, share_step).tolist()
    found = []
    for share in shares:
        most = most_tenants(share)
        some = counts or sorted({*(2**power for power in range(most.bit_length())), most})
        fitting = [
            size
            for size in _BATCHES
            if max(4.0, _LEAST_PER_SHARE * share) <= size <= _MOST_PER_SHARE * share
        ]
        for count, model in itertools.product([one for one in some if one <= most], models):
            found += [equal(model, share, size, count) for size in batches or fitting]
    return found


def few(models: Sequence[str], batches: Sequence[int] | None = None) -> list[Configuration]:
    """Return one, two and four tenants that share the whole GPU, for sweeps over clocks."""
    _check("batches", batches)
    return [
        equal(model, share, size, most_tenants(share))
        for share, model, size in itertools.product(_FEW, models, batches or _FEW_BATCHES)
    ]


def _check(name: str, values: Sequence[int] | None) -> None:
    if values and min(values) < 1:
        raise ValueError(f"{name} must be at least 1, got {list(values)}")


def equal(model: str, share_pct: float, batch: int, count: int) -> Configuration:
    """Return a configuration of equal tenants."""
    tenant = Tenant(model=model, share_pct=share_pct, batch=batch)
    return Configuration(tenants=(tenant,) * count)


def with_settings(
    configurations: Sequence[Configuration],
    *,
    sm_mhz: Sequence[float] = (),
    mem_mhz: Sequence[float] = (),
    limits_w: Sequence[float] = (),
) -> list[Configuration]:
    """Return each configuration at each clock and limit; an empty list leaves a setting as it is.

    A setting changes more rarely than the tenants.
    """
    return [
        replace(one, sm_mhz=sm, mem_mhz=mem, power_limit_w=limit)
        for mem, limit, sm, one in itertools.product(
            mem_mhz or (None,), limits_w or (None,), sm_mhz or (None,), configurations
        )
    ]


def designed(configurations: Sequence[Configuration], count: int) -> list[Configuration]:
    """Return some configurations of each model that are far from each other, in the given order.

    Distances are those of the logarithms of share, batch and number of tenants, and of clocks and
    limits, each scaled to its range. The choice begins with the smallest values; each next one is
    the configuration whose distance to the nearest chosen one is largest.

    Args:
        configurations: the candidates.
        count: number of configurations of each model; all candidates, if there are fewer.
    """
    by_model: dict[str, list[int]] = {}
    for index, one in enumerate(configurations):
        by_model.setdefault(one.tenants[0].model, []).append(index)
    chosen = [
        index
        for indices in by_model.values()
        for index in np.take(indices, _spread([configurations[i] for i in indices], count))
    ]
    return [configurations[index] for index in sorted(chosen)]


def _spread(candidates: Sequence[Configuration], count: int) -> list[int]:
    points = np.array([_features(one) for one in candidates])
    lows, highs = points.min(axis=0), points.max(axis=0)
    points = (points - lows) / np.where(highs > lows, highs - lows, 1.0)
    chosen = [int(points.sum(axis=1).argmin())]
    nearest = np.full(len(points), np.inf)
    while len(chosen) < min(count, len(candidates)):
        distances = np.linalg.norm(points - points[chosen[-1]], axis=1)
        nearest = np.minimum(nearest, distances)
        chosen.append(int(nearest.argmax()))
    return chosen


def _features(one: Configuration) -> list[float]:
    first = one.tenants[0]
    sizes = (first.share_pct, first.batch, len(one.tenants))
    settings = (one.sm_mhz or 1.0, one.mem_mhz or 1.0, one.power_limit_w or 1.0)
    return [float(np.log(value)) for value in (*sizes, *settings)]
