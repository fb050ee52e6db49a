"""The profile that a user has before a controller starts: the windows that docs/inference.md names.

It has 12 configurations that are far from each other (``profile --points 12``). Twice, a predictor
is then fitted, and the plans for three caps are measured (``fit``, ``plan``, ``verify --out``).
"""

from typing import Final

import numpy as np

from energy_callbacks.inference.control.candidates import Candidates, candidates, partitions
from energy_callbacks.inference.control.levels import Level
from energy_callbacks.inference.predictor import Predictor
from energy_callbacks.inference.profile.sweeps import anchor, designed, with_settings
from energy_callbacks.inference.records import Configuration, MeasuredWindow
from tests.benchmarks.controllers.plants import BATCHES, SHARES_PCT, DrawnPlant

POINTS: Final = 12
ROUNDS: Final = 2
# Clocks of the profile between the lowest and the highest, and caps of the plans as parts of the
# highest power that was measured.
_CLOCKS: Final = (0.25, 0.5, 0.75, 1.0)
_CAPS: Final = (0.45, 0.65, 0.85)
_WINDOW_S: Final = 5.0
_WARMUP_S: Final = 3.0


def profiled(plant: DrawnPlant, seed: int, *, has_clocks: bool = True) -> Predictor:
    """Return a predictor that is fitted to at most 18 windows of a plant.

    Args:
        plant: the plant.
        seed: seed of the noise of the windows.
        has_clocks: whether clocks may be changed.
    """
    gpu = plant.gpu(seed)

    def measured(one: Configuration) -> MeasuredWindow:
        return gpu.measure(one, window_s=_WINDOW_S, warmup_s=_WARMUP_S)

    lowest, highest = plant.card.clocks_mhz
    allowed = gpu.range("clock")
    clocks = [allowed.nearest(lowest + part * (highest - lowest)) for part in _CLOCKS]
    sweep = [
        one
        for one in anchor([plant.model], share_step=10.0)
        if one.tenants[0].share_pct in SHARES_PCT and one.tenants[0].batch in BATCHES
    ]
    candidates_ = with_settings(sweep, sm_mhz=clocks) if has_clocks else sweep
    rows = [measured(one) for one in designed(candidates_, POINTS)]
    waiting = Configuration(tenants=sweep[0].tenants)
    rows.append(gpu.measure(waiting, window_s=_WINDOW_S, warmup_s=_WARMUP_S, phase="static"))
    problem = plant.problem()
    levels = [Level(sm_mhz=one) for one in allowed.steps] if has_clocks else [Level()]
    for _ in range(ROUNDS):
        predictor = Predictor.fit_only(rows)
        choices = partitions(problem, predictor, levels)
        table = candidates(problem, predictor, levels, choices)
        most_w = max(one.power_mean_w or 0.0 for one in rows)
        known = {one.configuration for one in rows}
        plans = [_best(table, part * most_w) for part in _CAPS]
        rows += [measured(one) for one in dict.fromkeys(plans) if one not in known]
    return Predictor.fit_only(rows)


def _best(table: Candidates, cap_w: float) -> Configuration:
    """Return the configuration with the most predicted throughput below a cap."""
    rates = np.where(table.powers_w <= cap_w, table.rates, -np.inf)
    partition, level = np.unravel_index(int(rates.argmax()), rates.shape)
    return table.levels[level].configuration(table.partitions[partition])
