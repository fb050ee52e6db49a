"""Measures the planner: against all plans, the greedy algorithm, and the published tasks.

Instances are random additive models, in which the best plan can be computed: small ones by trying
every plan, in code of the tests. The greedy algorithm is the published one with its defects mended.
The published tasks are planned with the physics of the simulated A100 and RTX 3080 Ti, in which
tenants share the memory, so that the model is not additive. All of it is simulated.
"""

import math
import sys
import time
from collections.abc import Sequence
from random import Random
from statistics import mean
from typing import Final

from energy_callbacks.inference.bench.tasks import tasks
from energy_callbacks.inference.planner.plan import Infeasible, Plan
from energy_callbacks.inference.planner.problem import GpuSetting, Problem
from energy_callbacks.inference.planner.search import plan
from tests.benchmarks import bars
from tests.benchmarks.bars import Bar
from tests.inference.planner import task_gpus
from tests.inference.planner.synthetic import best_by_trying, random_gpu, small_problem

SMALL: Final = 200
_REPEATS: Final = 3
_LONGEST_S: Final = 3.0
_SAME: Final = 1e-9  # relative difference of rounding errors
CLOCKS: Final = (600.0, 1000.0, 1410.0)
# Clocks of the larger instances and tasks: steps of 150 MHz, as in the published profiles.
LADDER: Final = tuple(510.0 + 150.0 * step for step in range(7))


def against_all_plans(count: int) -> tuple[int, int]:
    """Return how many small instances differ from the best of all plans, and how many refuse."""
    different = refused = 0
    for seed in range(count):
        chance = Random(seed)
        gpu = random_gpu(chance, chance.randint(1, 3), CLOCKS[: chance.randint(1, 3)])
        problem = small_problem(chance, gpu)
        best, found = best_by_trying(problem, gpu), plan(problem, gpu, additive=gpu)
        if best is None or isinstance(found, Infeasible):
            refused += best is None
            different += (best is None) != isinstance(found, Infeasible)
        else:
            different += abs(found.value / best - 1.0) > _SAME
    return different, refused


def against_greedy(count: int, models: int) -> list[float]:
    """Return the plan's throughput relative to that of the greedy algorithm, of each instance."""
    ratios = []
    for seed in range(1000, 1000 + count):
        chance = Random(seed)
        gpu = random_gpu(chance, models, LADDER)
        problem = Problem(
            models=tuple(gpu.workloads),
            cap_w=chance.uniform(100.0, 250.0),
            settings=tuple(GpuSetting(sm_mhz=clock) for clock in LADDER),
            # Samples count relative to the throughput of a full GPU at batch 32, because the
            # lightest model would take all otherwise.
            weights={name: 1.0 / gpu.full_throughput(name) for name in gpu.workloads},
        )
        found = plan(problem, gpu, additive=gpu)
        greedy = found.others["greedy"] if isinstance(found, Plan) else None
        if isinstance(found, Plan) and greedy is not None:
            ratios.append(found.value / greedy)
    return ratios


def of_tasks(every: int) -> list[tuple[int, float, str]]:
    """Return number, seconds of processor time and answer of tasks with a fixed cap.

    Args:
        every: 1 for all of them, 3 for every third one.
    """
    found = []
    for task in [one for one in tasks() if one.cap_w is not None][::every]:
        model = task_gpus.PhysicsModel(task.gpu)
        problem = task_gpus.problem(task, model)
        seconds = math.inf
        for _ in range(_REPEATS):  # other programs can make one run slower
            start_s = time.process_time()
            answer = plan(problem, model)
            seconds = min(seconds, time.process_time() - start_s)
            if seconds <= _LONGEST_S:
                break
        found.append((task.number, seconds, _answer(answer)))
    return found


def _answer(found: Plan | Infeasible) -> str:
    if isinstance(found, Infeasible):
        return found.text()
    power_w, greedy = found.prediction.power_w.value, found.others["greedy"]
    gain = (
        "greedy: no plan" if greedy is None else f"greedy {100 * (greedy / found.value - 1):+.1f} %"
    )
    return f"{found.value:.0f} samples/s at {power_w:.0f} W, {gain}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and judge; returns the exit status."""
    told = bars.parser(__doc__).parse_args(arguments)
    different, refused = against_all_plans(SMALL)
    print(
        f"{SMALL} small instances: {different} differ from the best of all plans, {refused} refused"
    )
    several = against_greedy(6 if told.quick else 100, 4)
    print(
        f"four models, {len(several)} instances: {100 * (mean(several) - 1):.1f} % above greedy on "
        f"average, {100 * (max(several) - 1):.1f} % at most"
    )
    one = against_greedy(3 if told.quick else 50, 1)
    answers = of_tasks(3 if told.quick else 1)
    for number, seconds, answer in answers:
        print(f"task {number:2d}  {seconds:5.2f} s  {answer}")
    slowest = max(seconds for _, seconds, _ in answers)
    return bars.finish(
        "planner",
        told,
        [
            Bar(name="small instances that differ from all plans", value=different, at_most=0),
            Bar(
                name="plan / greedy, least of all", value=min([*several, *one]), at_least=1 - _SAME
            ),
            Bar(name="plan / greedy, four models, mean", value=mean(several), at_least=1.03),
            Bar(name="published tasks, slowest, s", value=slowest, at_most=_LONGEST_S),
        ],
        refused=refused,
        tasks=answers,
    )


if __name__ == "__main__":
    sys.exit(main())
