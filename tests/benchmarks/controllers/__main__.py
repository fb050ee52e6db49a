"""Measures controllers on GPUs that their predictor does not describe exactly.

Each plant is drawn from a seed (``plants.py``). Throughput is compared with that of the best fixed
operating point, which is found by trying all plans at all clocks. Controllers receive windows of 1
s, whose power comes from a sensor with the mean of 1 s; the bars are for the true power, from 5 s
after each change of the cap. Predictor and greedy plans come from at most 18 measured windows of
the same plant (``profiles.py``). Processes need 3 s to start. The published controllers run twice:
as they are, and with our tenants. The seeds of the bars were not used in development. Everything is
simulated.
"""

import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import partial
from multiprocessing import get_context
from statistics import mean
from typing import Final

from tests.benchmarks import bars
from tests.benchmarks.bars import Bar
from tests.benchmarks.controllers.runs import (
    OURS,
    OURS_UNPRIVILEGED,
    Outcome,
    call,
    outcomes,
    unprivileged,
)
from tests.benchmarks.controllers.tasks import TASKS, UNPRIVILEGED

# Development used the seeds from 100 to 199.
JUDGED: Final = tuple(range(2700, 2710))
_QUICK: Final = JUDGED[:1]
_QUICK_TASKS: Final = (TASKS[0], TASKS[5], TASKS[9], TASKS[10])
_PROCESSES: Final = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and judge; returns the exit status."""
    options = bars.parser(__doc__).parse_args(arguments)
    seeds = _QUICK if options.quick else JUDGED
    jobs: list[Callable[[], list[Outcome]]] = [
        partial(outcomes, task, seed)
        for task in (_QUICK_TASKS if options.quick else TASKS)
        for seed in seeds
    ]
    for task in UNPRIVILEGED[:1] if options.quick else UNPRIVILEGED:
        jobs += [partial(unprivileged, task, seed) for seed in seeds]
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # of the processes, which use all cores together
    with ProcessPoolExecutor(_PROCESSES, mp_context=get_context("spawn")) as pool:
        found = [one for each in pool.map(call, jobs) for one in each]
    _print(found)
    return bars.finish(
        "controllers",
        options,
        _bars(found, is_quick=options.quick),
        outcomes=[asdict(one) for one in found],
    )


def _bars(found: Sequence[Outcome], *, is_quick: bool) -> list[Bar]:
    """Return the bars of ours: the mean of all runs, and the worst task as a mean over its seeds.

    A quick run has one seed, so that its worst task is not judged.
    """
    ours = [one for one in found if one.name == OURS]
    unprivileged_ = [one for one in found if one.name == OURS_UNPRIVILEGED]
    kinds = (
        ("fixed caps", [one for one in ours if not one.is_dynamic], 0.95, 0.02),
        ("dynamic caps", [one for one in ours if one.is_dynamic], 0.93, 0.03),
        ("without privileges", unprivileged_, 0.90, 0.02),
    )
    judged = []
    for kind, some, least, most in kinds:
        rates, above = _by_task(some, "throughput"), _by_task(some, "above")
        for which, rate, share, is_judged in (
            ("mean", mean(rates), mean(above), True),
            ("worst task", min(rates), max(above), not is_quick),
        ):
            name = f"{kind}, {which}"
            judged += [
                Bar(name=f"{name}: part of best", value=rate, at_least=least, is_judged=is_judged),
                Bar(name=f"{name}: share above", value=share, at_most=most, is_judged=is_judged),
            ]
    return judged


def _by_task(found: Sequence[Outcome], field: str) -> list[float]:
    """Return the mean of a field over the seeds of each task."""
    tasks = dict.fromkeys(one.task for one in found)
    return [mean(getattr(one, field) for one in found if one.task == task) for task in tasks]


def _print(found: Sequence[Outcome]) -> None:
    """Print a table for each task: means over seeds, and the worst seed."""
    for task in dict.fromkeys(one.task for one in found):
        print(f"\n{task}\n{'':42s} throughput  worst  above  worst  overshoot")
        own = [one for one in found if one.task == task]
        for name in dict.fromkeys(one.name for one in own):
            some = [one for one in own if one.name == name]
            rates, above = [one.throughput for one in some], [one.above for one in some]
            print(
                f"{name:42s} {100 * mean(rates):8.1f} % {100 * min(rates):6.1f} "
                f"{100 * mean(above):6.1f} {100 * max(above):6.1f} "
                f"{100 * max(one.overshoot for one in some):8.1f} %  {len(some)} seeds"
            )


if __name__ == "__main__":
    sys.exit(main())
