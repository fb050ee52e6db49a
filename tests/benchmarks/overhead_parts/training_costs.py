"""Measures what the callback costs one training, in this process."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any, Final

from tests.benchmarks.overhead_parts.fit_pairs import (
    BLOCKS,
    Fit,
    Pair,
    Plan,
    Ratio,
    in_turn,
    ratios,
)
from tests.benchmarks.overhead_parts.hook_processor_time import HookProcessorTime
from tests.benchmarks.overhead_parts.trainings import Training

STEP_US: Final = 1500.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What the callback costs one training.

    Attributes:
        step_s: median over pairs of the mean duration of a step without the callback, steady state.
        ratios: changes of wall time and processor time, by block.
        fit_s: what the call of ``fit`` takes longer, median of the pairs, s.
        threads: processor time of our threads per second, by thread, in the steady state.
        start_threads: the same in the first 3 s.
        hooks_us: processor time of our hooks per step, us; ``None`` if it was not measured.
    """

    step_s: float
    ratios: dict[str, Ratio]
    fit_s: float
    threads: dict[str, float]
    start_threads: dict[str, float]
    hooks_us: float | None

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> "Costs":
        """Return the costs that ``asdict`` has converted."""
        return cls(**{**values, "ratios": {k: Ratio(**v) for k, v in values["ratios"].items()}})

    @property
    def processor(self) -> float | None:
        """Processor time of hooks and threads as a share of a step of 1.5 ms."""
        if self.hooks_us is None:
            return None
        return self.hooks_us / STEP_US + sum(self.threads.values())


def measure(training: Training, pairs: int, hook_steps: int) -> Iterator[Costs]:
    """Measure one training in this process; yield its costs after each pair, then with all parts.

    Args:
        training: the training.
        pairs: number of pairs of fits.
        hook_steps: number of steps of the training in which hooks are timed.
    """
    with tempfile.TemporaryDirectory() as folder:
        plan = Plan.of(training, Path(folder))
    done: list[Pair] = []
    for pair in in_turn(training, plan, pairs, training.callback):
        done.append(pair)
        costs = _of_pairs(done, plan)
        yield costs
    yield replace(costs, hooks_us=_hooks_us(training, hook_steps))


def _of_pairs(pairs: Sequence[Pair], plan: Plan) -> Costs:
    """Return what pairs of fits show."""
    changes = ratios(pairs)
    with_ = [one for one, _ in pairs]
    return Costs(
        step_s=changes[f"{BLOCKS[1]}, wall time"].without_s / plan.block,
        ratios=changes,
        fit_s=median([a.total_s - b.total_s for a, b in pairs]),
        threads=_threads(with_, 1),
        start_threads=_threads(with_, 0),
        hooks_us=None,
    )


def _threads(fits: Sequence[Fit], block: int) -> dict[str, float]:
    """Return the share of a core that each thread takes, over all fits."""
    sums: dict[str, float] = {}
    for fit in fits:
        for name, spent_s in fit.threads_s(block).items():
            sums[name] = sums.get(name, 0.0) + spent_s
    wall_s = sum(fit.wall_s(block) for fit in fits)
    return {name: spent_s / wall_s for name, spent_s in sums.items()}


def _hooks_us(training: Training, steps: int) -> float | None:
    """Return the processor time of our hooks per step, us; methods stay wrapped afterwards.

    ``None`` if ``hook_trainings`` has no training of this name.
    """
    module = f"tests.benchmarks.hook_trainings.{training.name.lower()}"
    if find_spec(module) is None:
        return None
    times = HookProcessorTime()
    import_module(module).train(times, steps=steps, every=None)
    return times.us_per_step()
