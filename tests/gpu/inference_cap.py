"""Profiles two models on a real GPU, plans for three power caps, and runs the plans.

``python -m tests.gpu.inference_cap --out DIR`` (at most ten minutes of an H200). No setting of the
GPU is changed: plans choose shares and batches alone. For each cap, a plan is measured and the
predictor fitted again, three times. The best measured configuration then runs for 20 s.
Prints, for each plan, the power in windows of one second against the cap, and the throughput
against its prediction. Exits with 1 unless, for each plan, power is at most the cap in 95 % of the
windows and throughput is within 10 % of its prediction and inside its interval, or if a process of
the profile is left.

``--gpu cpu`` and ``--gpu sim:h200`` check this script without a GPU.
"""

import argparse
import os
import time
from argparse import Namespace
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import psutil

from energy_callbacks.cli.powercap import open_bench
from energy_callbacks.inference.planner.plan import Infeasible, Plan
from energy_callbacks.inference.planner.problem import Problem
from energy_callbacks.inference.planner.search import plan
from energy_callbacks.inference.predictor.predictor import Predictor
from energy_callbacks.inference.profile import cleaner, run, sweeps
from energy_callbacks.inference.profile.sweeps import Job
from energy_callbacks.inference.profile.verify import Verification, verify
from energy_callbacks.inference.protocols import Bench
from energy_callbacks.inference.records import Configuration, MeasuredWindow
from energy_callbacks.inference.traces import append

SHARES: Final = (10.0, 25.0, 50.0, 100.0)
BATCHES: Final = (1, 4, 16, 64)
# Positions of the caps between the smallest and the largest power of the profile.
CAPS: Final = (0.35, 0.55, 0.75)
# Least rate of each model in a plan, as a share of its best rate in the profile.
LEAST_RATE: Final = 0.15
PROFILE_S: Final = 330.0  # no configuration begins after this time
ROUNDS: Final = 3  # plans that are measured for each cap before one is chosen
ROUND_S: Final = 6.0
WITHIN: Final = 0.95
DIFFERENCE: Final = 0.10


def main() -> int:
    """Profile, fit, plan and verify."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--gpu", default="auto")
    parser.add_argument("--models", nargs=2, default=default_models())
    parser.add_argument("--points", type=int, default=10, help="points of each model alone")
    parser.add_argument("--window", type=float, default=2.0)
    parser.add_argument("--seconds", type=int, default=20, help="windows of each plan")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    options = Namespace(gpu=given.gpu, data=None, seed=0, load_timeout=120.0, yes=False)
    options.action = "profile"
    start_s = time.monotonic()
    with open_bench.opened(options, []) as bench:
        rows = profiled(bench, configurations(given.models, given.points), given)
        predictor = Predictor.fit(rows)
        print(f"\nprofile and fit: {time.monotonic() - start_s:.0f} s; {predictor.identity}")
        for one in predictor.held_out:
            print(one)
        problems = [problem_of(rows, position, given.models) for position in CAPS]
        for _ in range(ROUNDS):
            for problem in problems:
                measure_plan(bench, problem, rows, given)
        measured = [one.configuration for one in rows if one.status == "ok"]
        predictor = Predictor.fit_only(rows)
        chosen = [plan(problem, predictor, measured=measured) for problem in problems]
        print(f"\n{time.monotonic() - start_s:.0f} s until all plans were measured")
        holds = [verified(bench, one, given) for one in chosen]
    left = processes_left()
    print(f"\n{time.monotonic() - start_s:.0f} s in total; processes left: {left or 'none'}")
    return 0 if all(holds) and not left else 1


def default_models() -> list[str]:
    """Return models of torchvision, or of the zoo if torchvision is not installed."""
    if find_spec("torchvision"):
        return ["resnet50", "mobilenet_v2"]
    return ["zoo:resnet50", "zoo:transformer"]


def configurations(models: list[str], points: int) -> list[Configuration]:
    """Return configurations of each model alone, and some of both, in an order that is fast."""
    alone = [
        sweeps.equal(model, share, batch, count)
        for share in SHARES
        for count in sorted({1, 2, int(100.0 / share)})
        for model in models
        for batch in BATCHES
        if count * share <= 100.0
    ]
    both = [
        sweeps.single([*models, *models][:count], [share], [batch, other][:count] * (count // 2))
        for share, count in ((50.0, 2), (25.0, 4))
        for batch, other in ((4, 16), (64, 16))
    ]
    return [*sweeps.designed(alone, points), *both]


def profiled(
    bench: Bench, chosen: list[Configuration], given: Namespace, limit_s: float = PROFILE_S
) -> list[MeasuredWindow]:
    """Measure configurations until the time is over, and print a line for each."""
    rows: list[MeasuredWindow] = []
    jobs = [Job(configuration=one, phase="anchor", mode="infer") for one in chosen]
    # Those of both models are at the end; they are measured first, so that none is missing.
    jobs = [*jobs[-4:], *jobs[:-4]]
    end_s = time.monotonic() + limit_s
    for progress in run.measured(
        bench,
        jobs,
        lambda row: append(given.out / "profile.csv", row),
        window_s=given.window,
        warmup_s=given.window / 2.0,
        run_id=given.out.name,
    ):
        row = progress.row
        rows.append(row)
        print_row(f"[{progress.done}/{progress.count}]", row)
        if time.monotonic() > end_s:
            print("the time for the profile is over")
            break
    return rows


def problem_of(rows: list[MeasuredWindow], position: float, models: list[str]) -> Problem:
    """Return what is planned for a cap between the smallest and largest power of the profile."""
    powers_w = [row.power_mean_w for row in rows if row.power_mean_w is not None]
    cap_w = min(powers_w) + position * (max(powers_w) - min(powers_w))
    # Without least rates, only the model with more samples per second would run.
    return Problem(
        models=tuple(models),
        cap_w=round(cap_w),
        shares_pct=(10, 20, 25, 50, 100),
        batches=BATCHES,
        min_rates_per_s={model: LEAST_RATE * best_rate(rows, model) for model in models},
    )


def measure_plan(
    bench: Bench, problem: Problem, rows: list[MeasuredWindow], given: Namespace
) -> None:
    """Plan from measured windows, and add a window of the plan to them."""
    found = plan(problem, Predictor.fit_only(rows))
    if isinstance(found, Infeasible):
        print(f"no plan for {problem.cap_w:g} W: {found.text()}")
        return
    row = bench.measure(found.configuration, window_s=ROUND_S, warmup_s=2.0, phase="online")
    append(given.out / "rounds.csv", row)
    print_row(f"plan for {problem.cap_w:g} W", row)
    rows.append(row)


def verified(bench: Bench, found: Plan | Infeasible, given: Namespace) -> bool:
    """Run a plan, print it and what it has done, and return whether the plan holds."""
    print(f"\ncap {found.problem.cap_w:g} W\n{found.text()}")
    if isinstance(found, Infeasible):
        return False
    found.write(given.out / f"plan-{found.problem.cap_w:.0f}w.json")
    result = verify(
        found,
        bench,
        seconds=given.seconds,
        warmup_s=3.0,
        write=lambda row: append(given.out / "verify.csv", row),
    )
    show(found, result)
    rate = result.throughput
    is_near = rate is not None and rate.is_inside and abs(rate.difference) <= DIFFERENCE
    return is_near and (result.share_within_cap or 0.0) >= WITHIN


def print_row(title: str, row: MeasuredWindow) -> None:
    """Print what a window has measured."""
    tenants = [(one.model, one.share_pct, one.batch) for one in row.configuration.tenants]
    figures = f"{row.throughput_per_s or 0.0:8.0f}/s {row.power_mean_w or 0.0:6.1f} W"
    print(f"{title} {figures} {row.status} {tenants}", flush=True)


def best_rate(rows: list[MeasuredWindow], model: str) -> float:
    """Return the most samples per second of a model alone in the profile."""
    return max(
        row.throughput_per_s or 0.0
        for row in rows
        if {one.model for one in row.configuration.tenants} == {model}
    )


def show(found: Plan, result: Verification) -> None:
    """Print what the plan has done."""
    for name, one in (("samples/s", result.throughput), ("W", result.power)):
        if one is not None:
            low, high = one.predicted[1:]
            print(
                f"{name}: measured {one.measured:.1f}, predicted {one.predicted.value:.1f} "
                f"({low:.1f} to {high:.1f}), {100.0 * one.difference:+.1f} %, inside "
                f"{one.is_inside}"
            )
    share = 100.0 * (result.share_within_cap or 0.0)
    print(f"power at most {found.problem.cap_w:g} W in {share:.0f} % of {result.windows} windows")
    if result.failure:
        print(result.failure)


def processes_left() -> list[int]:
    """Return the ids of this user's processes that belong to a profile."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.pid != os.getpid() and cleaner.MARK in process.environ():
                found.append(process.pid)
    return found


if __name__ == "__main__":
    raise SystemExit(main())
