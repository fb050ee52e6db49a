"""Estimates what a lower power limit would save, for a run in which nothing was optimised.

The estimate is a rule and what it gave in measured trainings: a power limit of 95 % of the mean
power in training. In 71 of the trainings that Zeus measured at all power limits of a V100 and an
A40 (You, Chung, Chowdhury, NSDI 2023; github.com/ml-energy/zeus, trace/summary_power_*.csv), the
mean power was at least 60 % of the highest limit. For a limit between two measured ones, time and
power are interpolated.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from energy_callbacks.core.formatting import percent
from energy_callbacks.report.model.recommendation import MATTERS, Advice
from energy_callbacks.report.model.runs import DeviceUse, devices_in_sum
from energy_callbacks.report.model.schema import EnergyReport

# Share of the mean power in training to which the limit is set.
_SHARE: Final = 0.95
# With a smaller mean power, relative to the limit, the load is not steady, and the rule was not
# tested.
_STEADY: Final = 0.6
# With a larger one, or if the card was throttled, the limit holds the card back already.
_AT_LIMIT: Final = 0.85
_STEP_W: Final = 5.0  # proposed limits are multiples of this


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitEffect:
    """What a lower power limit would change, as quantiles of measured trainings.

    Attributes:
        limit_w: the proposed limit of each GPU, W.
        saving: saving of the GPUs' energy per step, as fraction: median.
        saving_low: 10 % quantile.
        saving_high: 90 % quantile.
        slowdown_high: increase of the time of a step, as fraction: 90 % quantile.
    """

    limit_w: float
    saving: float
    saving_low: float
    saving_high: float
    slowdown_high: float


def estimated_effect(report: EnergyReport) -> LimitEffect | None:
    """Return what a lower limit would change; ``None`` if the run gives no reason to lower it."""
    limits_w = {gpu.limit_w for gpu in _gpus(report)}
    train = next((phase for phase in report.phases if phase.name == "train"), None)
    limit_w = limits_w.pop() if len(limits_w) == 1 else None
    if limit_w is None or train is None or not train.duration_s or not train.gpu.is_resolved:
        return None
    power_w = (train.gpu.energy_j or 0.0) / train.duration_s / len(_gpus(report))
    if not _STEADY <= power_w / limit_w <= 1.2:  # above: other figures of the run are wrong
        return None
    if (report.throughput.data_wait_fraction or 0.0) >= MATTERS:
        return None  # the power between the waits is higher than the mean
    new_w = _STEP_W * round(_SHARE * power_w / _STEP_W)
    if power_w >= _AT_LIMIT * limit_w or _is_throttled(report):
        # 30 trainings with a mean power of at least 85 % of the limit.
        return LimitEffect(
            limit_w=new_w, saving=0.090, saving_low=0.067, saving_high=0.103, slowdown_high=0.043
        )
    # 41 trainings with 60 to 85 %.
    return LimitEffect(
        limit_w=new_w, saving=0.151, saving_low=0.112, saving_high=0.190, slowdown_high=0.097
    )


def _gpus(report: EnergyReport) -> list[DeviceUse]:
    return [one for one in devices_in_sum(report.devices, "gpu") if one.kind == "gpu"]


def _is_throttled(report: EnergyReport) -> bool:
    seconds = [gpu.throttled_s or 0.0 for gpu in _gpus(report)]
    return bool(seconds) and max(seconds) >= MATTERS * report.run.duration_s


def power_limit_advice(report: EnergyReport) -> Iterator[Advice]:
    """Yield advice on the power limit if nothing was optimised and it would save enough."""
    has_search = report.profile is not None and report.profile.power_limit is not None
    effect = None if has_search or report.power_changes else estimated_effect(report)
    train = next((phase for phase in report.phases if phase.name == "train"), None)
    whole_j = report.energy.total.energy_j
    if effect is None or train is None or train.gpu.energy_j is None or not whole_j:
        return
    if effect.saving * train.gpu.energy_j < MATTERS * whole_j:
        return
    yield Advice(
        code="power_limit",
        message=f"No power limit was optimised. A limit of {effect.limit_w:g} W is estimated to "
        f"save {percent(effect.saving_low)} to {percent(effect.saving_high)} of the energy of the "
        f"GPUs in training, with steps that are at most {percent(effect.slowdown_high)} slower.",
        fix="pass power_limit=PowerLimitOptimizer(max_slowdown=0.05, allow_changes=True), which "
        "measures the best limit during the training",
        saves_j=effect.saving_high * train.gpu.energy_j,
    )
