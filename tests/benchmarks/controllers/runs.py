"""Runs controllers on drawn plants, and compares them with the best fixed operating point."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from energy_callbacks.inference.control.controllers import create
from energy_callbacks.inference.control.loop import run
from energy_callbacks.inference.control.protocols import Controller, Need, Tenants
from energy_callbacks.inference.control.simulated_plant import ALL, SimulatedPlant
from tests.benchmarks.controllers.plants import DrawnPlant, plans
from tests.benchmarks.controllers.profiles import profiled
from tests.benchmarks.controllers.tasks import WINDOWS, Task

OURS: Final = "model"
OURS_UNPRIVILEGED: Final = "model, without privileges"
# Name in the table, controller and options.
OTHERS: Final[tuple[tuple[str, str, Mapping[str, Any]], ...]] = (
    ("pctodl", "pctodl", {}),
    ("pctodl, as published", "pctodl", {"faithful": True}),
    ("morak", "morak", {}),
    ("batchdvfs", "batchdvfs", {}),
    ("batchdvfs of pctodl", "batchdvfs", {"law": "pctodl"}),
    ("directcap", "directcap", {}),
    ("powercap", "powercap", {}),
)
ALIKE: Final = " with our tenants"
UNPRIVILEGED: Final[frozenset[Need]] = frozenset({"partition", "batch", "duty"})
# Windows that begin earlier than this after a change of the cap do not count, s.
SETTLING_S: Final = 5.0
SETTLING_UNPRIVILEGED_S: Final = 10.0
_ROUNDING_S: Final = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a controller achieved in a task on the plant of a seed.

    Attributes:
        name: name of the controller in the table.
        task: name of the task.
        is_dynamic: whether the cap changed.
        seed: the seed.
        throughput: throughput, relative to that of the best fixed operating point.
        above: share of windows whose true mean power was above the cap.
        overshoot: largest true mean power of a window, relative to the cap, minus 1.
        tenants: its tenants at the end.
    """

    name: str
    task: str
    is_dynamic: bool
    seed: int
    throughput: float
    above: float
    overshoot: float
    tenants: Tenants = ()


def outcomes(task: Task, seed: int, *, others: bool = True) -> list[Outcome]:
    """Return what all controllers achieve in a task; those that find no plan are left out."""
    plant = DrawnPlant.drawn(task.key, task.model, seed)
    best = plant.best(task.caps_w)
    predictor = profiled(plant, seed + 1)

    def outcome(label: str, name: str, **options: Any) -> Outcome:
        controller = create(name, plant.problem(), predictor, **options)
        return _outcome(label, controller, plant, task, best=best)

    ours = outcome(OURS, OURS)
    found = [ours]
    if not others:
        return found
    for label, name, options in OTHERS:
        for suffix, partition in (("", None), (ALIKE, ours.tenants)):
            try:
                found.append(outcome(label + suffix, name, partition=partition, **options))
            except ValueError as error:
                if "finds no plan" not in str(error):
                    raise
    return found


def call(job: Callable[[], list[Outcome]]) -> list[Outcome]:
    """Return what a job returns; a process pool cannot call functions of a main module."""
    return job()


def unprivileged(task: Task, seed: int) -> list[Outcome]:
    """Return what ours achieves by shares, batches and duty, relative to the best fixed plan."""
    plant = DrawnPlant.drawn(task.key, task.model, seed)
    predictor = profiled(plant, seed + 1, has_clocks=False)
    controller = create(OURS, plant.problem(), predictor)
    best = {cap_w: _best_plan(plant, cap_w) for cap_w in task.caps_w}
    found = _outcome(
        OURS_UNPRIVILEGED,
        controller,
        plant,
        task,
        best=best,
        can=UNPRIVILEGED,
        settling_s=SETTLING_UNPRIVILEGED_S,
    )
    return [found]


def _best_plan(plant: DrawnPlant, cap_w: float) -> float:
    """Return the highest throughput of a plan below a cap at the highest clock."""
    curves = [plant.steady(tenants) for tenants in plans(plant)]
    return max(float(rates[-1]) for powers_w, rates in curves if powers_w[-1] <= cap_w)


def _outcome(
    label: str,
    controller: Controller,
    plant: DrawnPlant,
    task: Task,
    *,
    best: Mapping[float, float],
    can: frozenset[Need] = ALL,
    settling_s: float = SETTLING_S,
) -> Outcome:
    gpu = plant.gpu(plant.seed + 2)
    simulated = SimulatedPlant(gpu, can=can, meter="sensor")
    rates, wanted, excesses = [], [], []
    tenants: Tenants = ()
    for seen in _counted(controller, simulated, task, lambda: gpu.energy_j, settling_s):
        rates.append(seen.rate)
        wanted.append(best[seen.cap_w])
        excesses.append(seen.true_w / seen.cap_w - 1.0)
        tenants = seen.tenants
    return Outcome(
        name=label,
        task=task.name,
        is_dynamic=task.is_dynamic,
        seed=plant.seed,
        throughput=float(np.sum(rates) / np.sum(wanted)),
        above=float(np.mean(np.array(excesses) > 0.0)),
        overshoot=max(excesses),
        tenants=tenants,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """A window that counts: its cap and true power in W, samples per second, and tenants."""

    cap_w: float
    true_w: float
    rate: float
    tenants: Tenants


def _counted(
    controller: Controller,
    plant: SimulatedPlant,
    task: Task,
    energy_j: Callable[[], float],
    settling_s: float,
) -> Iterator[_Seen]:
    """Yield the windows that count; their power is that of the true energy, not of the sensor."""
    before_j, last_w, changed_s = 0.0, 0.0, 0.0
    for window, cap_w in run(controller, plant, task.schedule, windows=WINDOWS):
        after_j = energy_j()
        true_w = (after_j - before_j) / (window.end_s - window.start_s)
        before_j = after_j
        if cap_w != last_w:
            last_w, changed_s = cap_w, window.start_s
        if window.start_s - changed_s >= settling_s - _ROUNDING_S:
            yield _Seen(
                cap_w=cap_w,
                true_w=true_w,
                rate=window.throughput_per_s,
                tenants=window.point.configuration.tenants,
            )
