"""A controller, a GPU and predictors that do what tests need, without planning."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, cast

from energy_callbacks.inference.bench.devices import controlled
from energy_callbacks.inference.bench.predictors import Predictors
from energy_callbacks.inference.bench.runs import Run
from energy_callbacks.inference.bench.tasks import Task
from energy_callbacks.inference.control.protocols import (
    Abilities,
    Controller,
    Need,
    OperatingPoint,
    Window,
)
from energy_callbacks.inference.planner.problem import Problem
from energy_callbacks.inference.protocols import Bench
from energy_callbacks.inference.records import Configuration, Source, Tenant

POINT = OperatingPoint(
    configuration=Configuration(tenants=(Tenant(model="m", share_pct=50, batch=8),) * 2)
)


class Still:
    """A controller that always has the same operating point."""

    name = "still"
    needs: frozenset[Need] = frozenset()
    degraded = "nothing is changed"

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def start(self, cap_w: float, abilities: Abilities) -> OperatingPoint:
        """See ``Controller``."""
        if cap_w < 1.0:
            raise ValueError(f"{cap_w:g} W is too low for this controller")
        return POINT

    def cap_changed(self, cap_w: float) -> OperatingPoint:
        """See ``Controller``."""
        return POINT

    def step(self, window: Window) -> OperatingPoint:
        """See ``Controller``."""
        return POINT


class SteadyPlant:
    """A GPU whose power is 90 W plus its seed, and one watt more in each window."""

    abilities = Abilities(can=frozenset())

    def __init__(self, seed: int) -> None:
        self._seed, self._count = seed, 0

    def apply(self, point: OperatingPoint) -> None:
        """See ``Plant``."""

    def window(self, duration_s: float) -> Window:
        """See ``Plant``."""
        self._count += 1
        return Window(
            start_s=1000.0 + self._count * duration_s,
            end_s=1000.0 + (self._count + 1) * duration_s,
            point=POINT,
            is_steady=True,
            power_mean_w=90.0 + self._seed + self._count,
            power_max_w=100.0,
            throughput_per_s=10.0,
        )


class SteadyDevice:
    """A GPU with such plants."""

    name, label = "steady", "steady"
    source: Source = "simulated"
    clocks_mhz: tuple[float, ...] = ()

    def check(self, task: Task) -> None:
        """See ``Device``."""

    def dataset(self, task: Task) -> str:
        """See ``Device``."""
        return task.dataset

    def problem(self, task: Task) -> Problem:
        """See ``Device``."""
        return Problem(models=(task.model,))

    def bench(self, task: Task) -> AbstractContextManager[Bench]:
        """See ``Device``."""
        raise AssertionError("no profile is needed")

    @contextmanager
    def windows(
        self, run: Run, controller: Controller, window_s: float
    ) -> Iterator[Iterator[tuple[Window, float]]]:
        """See ``Device``."""
        yield controlled(run.task, controller, SteadyPlant(run.seed), window_s)

    def best_per_s(self, task: Task, cap_w: float) -> float | None:
        """See ``Device``."""
        return None

    def timestamp(self, t_s: float) -> str:
        """See ``Device``."""
        return f"{t_s:g}"


class _NoPredictors:
    def of(self, *_: object) -> None:
        """Return nothing."""


NO_PREDICTORS = cast("Predictors", _NoPredictors())
CONTROLLERS: Mapping[str, Any] = {"still": Still, "other": Still}


def task(number: int = 1, cap_w: float = 100.0, iterations: int = 3) -> Task:
    """Return a task with a fixed cap."""
    return Task(
        number=number,
        gpu="steady",
        model="m",
        dataset="d",
        schedule=((0, cap_w),),
        iterations=iterations,
    )
