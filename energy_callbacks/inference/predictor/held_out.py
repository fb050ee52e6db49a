"""Errors on windows that were left out of the fit, one value of a setting at a time."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from energy_callbacks.inference.protocols import PredictionModel
from energy_callbacks.inference.records import Configuration, Interval, MeasuredWindow

# What has the values that are left out, one at a time: batch sizes, shares, numbers of tenants,
# power limits and clocks. A configuration with several batches belongs to each of them.
_SETTINGS: Final[dict[str, Callable[[Configuration], set[Any]]]] = {
    "batch": lambda one: {tenant.batch for tenant in one.tenants},
    "share": lambda one: {tenant.share_pct for tenant in one.tenants},
    "tenants": lambda one: {len(one.tenants)},
    "limit": lambda one: {one.power_limit_w},
    "clock": lambda one: {one.sm_mhz},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """Errors if each value of a setting is left out of the fit, and then predicted.

    Attributes:
        setting: ``batch``, ``share``, ``tenants``, ``limit`` or ``clock``.
        values: number of its values.
        windows: number of predictions.
        throughput_error: mean absolute error of the throughput, relative.
        power_error: that of the power.
        throughput_within: part of the windows whose throughput is in the 90 % interval.
        power_within: part of the windows whose power is in the interval.
    """

    setting: str
    values: int
    windows: int
    throughput_error: float | None
    power_error: float | None
    throughput_within: float | None
    power_within: float | None


def held_out(
    windows: Sequence[MeasuredWindow], fit: Callable[[Sequence[MeasuredWindow]], PredictionModel]
) -> tuple[HeldOut, ...]:
    """Return the errors for every setting that has two values or more.

    Args:
        windows: usable windows.
        fit: fits a part of them.
    """
    return tuple(
        _errors(setting, windows, fit, values)
        for setting, of in _SETTINGS.items()
        if len(values := {value for one in windows for value in of(one.configuration)}) > 1
    )


def _errors(
    setting: str,
    windows: Sequence[MeasuredWindow],
    fit: Callable[[Sequence[MeasuredWindow]], PredictionModel],
    values: set[Any],
) -> HeldOut:
    of = _SETTINGS[setting]
    throughputs: list[tuple[Interval, float]] = []
    powers: list[tuple[Interval, float]] = []
    for value in values:
        left_out = [one for one in windows if value in of(one.configuration)]
        kept = [one for one in windows if value not in of(one.configuration)]
        for predicted, one in _predictions(left_out, kept, fit):
            if one.throughput_per_s:
                throughputs.append((predicted[0], one.throughput_per_s))
            if one.power_mean_w:
                powers.append((predicted[1], one.power_mean_w))
    return HeldOut(
        setting=setting,
        values=len(values),
        windows=max(len(throughputs), len(powers)),
        throughput_error=_mean_error(throughputs),
        power_error=_mean_error(powers),
        throughput_within=_part_within(throughputs),
        power_within=_part_within(powers),
    )


def _predictions(
    left_out: Sequence[MeasuredWindow],
    kept: Sequence[MeasuredWindow],
    fit: Callable[[Sequence[MeasuredWindow]], PredictionModel],
) -> Iterator[tuple[tuple[Interval, Interval], MeasuredWindow]]:
    """Yield what is predicted for windows that were left out; nothing if too few are kept."""
    try:
        model = fit(kept)
    except ValueError:
        return
    for one in left_out:
        try:
            found = model.predict(one.configuration)
        except ValueError:  # its model is in no other window
            continue
        yield (found.throughput_per_s, found.power_w), one


def _mean_error(pairs: Sequence[tuple[Interval, float]]) -> float | None:
    errors = [abs(found.value / true - 1) for found, true in pairs]
    return float(np.mean(errors)) if errors else None


def _part_within(pairs: Sequence[tuple[Interval, float]]) -> float | None:
    within = [found.low <= true <= found.high for found, true in pairs]
    return float(np.mean(within)) if within else None
