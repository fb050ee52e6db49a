"""Holds a power cap on a real GPU by shares, batches and pauses alone, and then a lower one.

``python -m tests.gpu.serve_cap --out DIR`` (less than ten minutes of an H200). No setting of the
GPU is changed. Two models are profiled for two minutes, or ``--profile CSV`` is read; then our
controller serves requests of a closed loop for three minutes under a cap, and for two minutes
under one that is 20 % lower. Exits with 1 unless, from 10 s after each change of the cap,
power is above the cap in at most 2 % of the windows of one second, and throughput is at least 90 %
of the best measured configuration below the cap, or if a process is left. Writes ``windows.csv``,
``power.png`` and ``serve.json`` to DIR.

``--gpu sim:h200 --models resnet50 mobilenet_v2`` checks this script without a GPU.
"""

import argparse
import json
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Final

from energy_callbacks.cli.powercap import open_bench
from energy_callbacks.inference.control.controllers import create
from energy_callbacks.inference.control.loop import CapSchedule
from energy_callbacks.inference.control.protocols import Controller, Window
from energy_callbacks.inference.planner.plan import Infeasible
from energy_callbacks.inference.planner.problem import Problem
from energy_callbacks.inference.planner.search import plan
from energy_callbacks.inference.predictor.predictor import Predictor
from energy_callbacks.inference.profile.verify import verify
from energy_callbacks.inference.protocols import Bench
from energy_callbacks.inference.records import MeasuredWindow
from energy_callbacks.inference.serve.arrivals import ClosedLoop
from energy_callbacks.inference.serve.machine import LocalMachine, Machine, SimulatedMachine
from energy_callbacks.inference.serve.report import ServeReport
from energy_callbacks.inference.serve.server import Server, tenants_text
from energy_callbacks.inference.serve.session import serve
from energy_callbacks.inference.traces import append, read
from tests.gpu.inference_cap import (
    BATCHES,
    LEAST_RATE,
    best_rate,
    configurations,
    default_models,
    processes_left,
    profiled,
)
from tests.gpu.serve_picture import write_power

SHARES: Final = (10, 20, 25, 50, 100)
FIRST: Final = 0.85  # the first cap, as a part of the power of the best plan without a cap
LOWER: Final = 0.8  # the second cap, as a part of the first
SETTLED_S: Final = 10.0  # windows count from this time after a change of the cap
ABOVE: Final = 0.02
THROUGHPUT: Final = 0.90
NEAR: Final = 0.9  # a plan keeps least rates as predicted, not as measured
VERIFY_S: Final = 6
PLANS: Final = 2  # plans that are run for each cap, if the first is above it


def main() -> int:
    """Profile, serve, and compare."""
    given = _arguments()
    given.out.mkdir(parents=True, exist_ok=True)
    options = Namespace(gpu=given.gpu, data=None, seed=0, load_timeout=120.0, yes=False)
    options.action = "serve_cap"
    start_s = time.monotonic()
    with open_bench.opened(options, []) as bench:
        rows = _profile(bench, given)
        predictor = Predictor.fit(rows)
        print(f"\nprofile and fit: {time.monotonic() - start_s:.0f} s; {predictor.identity}")
        problem = _problem(rows, given.models)
        caps_w = _caps_w(problem, predictor)
        for cap_w in caps_w:
            rows += _verified(bench, problem, predictor, cap_w)
        bests = [_best(rows, problem, cap_w) for cap_w in caps_w]
    print(f"{time.monotonic() - start_s:.0f} s before serving", flush=True)
    with opened_machine(options) as machine:
        report = _serve(machine, problem, rows, caps_w, given)
    print(f"\n{report.text()}\n")
    (given.out / "serve.json").write_text(json.dumps(report.as_json(), indent=2) + "\n")
    write_power(given.out / "power.png", report)
    first_s = report.windows[0][0].start_s
    changes_s = [first_s, first_s + given.first]
    holds = [
        _compared(report, best, change_s, cap_w)
        for best, change_s, cap_w in zip(bests, changes_s, caps_w, strict=True)
    ]
    left = processes_left()
    print(f"\n{time.monotonic() - start_s:.0f} s in total; processes left: {left or 'none'}")
    return 0 if all(holds) and not left else 1


def _arguments() -> Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--out", type=Path, required=True, help="folder of the results")
    add("--gpu", default="auto")
    add("--models", nargs=2, default=default_models())
    add("--profile", type=Path, default=None, help="profile of earlier; without it, one is made")
    add("--profile-s", type=float, default=110.0, help="no configuration begins after this time")
    add("--points", type=int, default=9, help="points of each model alone")
    add("--window", type=float, default=2.0)
    add("--first", type=int, default=180, help="seconds under the first cap")
    add("--second", type=int, default=125, help="seconds under the second cap")
    return parser.parse_args()


def _profile(bench: Bench, given: Namespace) -> list[MeasuredWindow]:
    if given.profile is not None:
        return [row for row in read(given.profile) if row.phase == "anchor"]
    chosen = configurations(given.models, given.points)
    return profiled(bench, chosen, given, given.profile_s)


def _caps_w(problem: Problem, predictor: Predictor) -> tuple[float, float]:
    free = plan(problem, predictor)
    if isinstance(free, Infeasible):
        raise SystemExit(free.text())
    first_w = FIRST * free.prediction.power_w.value
    return float(round(first_w)), float(round(LOWER * first_w))


def _problem(rows: Sequence[MeasuredWindow], models: Sequence[str]) -> Problem:
    """Return what is planned: both models must be served."""
    least = {model: LEAST_RATE * best_rate(list(rows), model) for model in models}
    return Problem(models=tuple(models), shares_pct=SHARES, batches=BATCHES, min_rates_per_s=least)


def _verified(
    bench: Bench, problem: Problem, predictor: Predictor, cap_w: float
) -> list[MeasuredWindow]:
    """Run plans for a cap until one is below it, and return what was measured."""
    rows: list[MeasuredWindow] = []
    aim_w = cap_w
    while len(rows) < PLANS:
        rows += _run_plan(bench, problem, predictor, aim_w)
        power_w = rows[-1].power_mean_w if rows else None
        if power_w is None or power_w <= cap_w:
            break
        aim_w *= 0.99 * cap_w / power_w
    return rows


def _run_plan(
    bench: Bench, problem: Problem, predictor: Predictor, aim_w: float
) -> list[MeasuredWindow]:
    """Run the plan for a cap for some seconds, and return a row with the means of its windows."""
    found = plan(replace(problem, cap_w=aim_w), predictor)
    if isinstance(found, Infeasible):
        print(f"no plan for {aim_w:g} W: {found.text()}")
        return []
    rows: list[MeasuredWindow] = []
    verify(found, bench, seconds=VERIFY_S, warmup_s=2.0, write=rows.append)
    known = [row for row in rows if row.status == "ok"]
    if not known:
        return []
    names = ("throughput_per_s", "power_mean_w")
    means = {name: sum(getattr(row, name) for row in known) / len(known) for name in names}
    rates = [row.tenant_throughputs_per_s for row in known]
    each = tuple(sum(column) / len(known) for column in zip(*rates, strict=True))
    row = replace(known[0], **means, tenant_throughputs_per_s=each)
    print(f"plan for {aim_w:.0f} W: {_row_text(row)}", flush=True)
    return [row]


def opened_machine(options: Namespace) -> AbstractContextManager[Machine]:
    """Return what serves on the GPU of ``options.gpu``, without changing a setting."""
    if open_bench.is_simulated(options):
        return nullcontext(SimulatedMachine(open_bench.simulated(options)))
    return LocalMachine(open_bench.device(options.gpu), load_s=options.load_timeout)


def _serve(
    machine: Machine,
    problem: Problem,
    rows: Sequence[MeasuredWindow],
    caps_w: tuple[float, float],
    given: Namespace,
) -> ServeReport:
    predictor = Predictor.fit(rows)

    def write(row: MeasuredWindow) -> None:
        append(given.out / "windows.csv", row)

    def show(window: Window, cap_w: float) -> None:
        mark = " ABOVE" if window.power_mean_w > cap_w else ""
        steady = "" if window.is_steady else " not steady"
        print(
            f"{window.power_mean_w:6.1f} of {cap_w:g} W {window.throughput_per_s:8.0f}/s duty "
            f"{window.point.duty:.2f} {tenants_text(window.point.configuration)}{steady}{mark}",
            flush=True,
        )

    def controller(_: Mapping[str, float | None]) -> Controller:
        return create("model", problem, predictor, measured=rows)

    server = Server(machine, {model: ClosedLoop() for model in problem.models}, write=write)
    schedule = CapSchedule(((0.0, caps_w[0]), (float(given.first), caps_w[1])))
    seconds = given.first + given.second
    return serve(server, controller, schedule, seconds=seconds, on_window=show)


def _best(rows: Sequence[MeasuredWindow], problem: Problem, cap_w: float) -> MeasuredWindow | None:
    """Return the measured configuration below a cap with the most throughput."""
    return max(
        (row for row in rows if _is_allowed(row, problem, cap_w)),
        key=lambda row: row.throughput_per_s or 0.0,
        default=None,
    )


def _compared(
    report: ServeReport, best: MeasuredWindow | None, change_s: float, cap_w: float
) -> bool:
    """Print power and throughput under one cap, and return whether both suffice."""
    windows = [
        window
        for window, own_w in report.windows
        if own_w == cap_w and window.start_s >= change_s + SETTLED_S - 1e-6
    ]
    above = sum(one.power_mean_w > cap_w for one in windows) / len(windows)
    rate = sum(one.throughput_per_s for one in windows) / len(windows)
    power_w = sum(one.power_mean_w for one in windows) / len(windows)
    print(
        f"cap {cap_w:g} W: mean {power_w:.1f} W, above in {100.0 * above:.1f} % of {len(windows)} "
        f"windows, {rate:.0f}/s"
    )
    if best is None or best.throughput_per_s is None:
        print("no measured configuration is below this cap")
        return False
    share = rate / best.throughput_per_s
    print(f"best measured: {_row_text(best)}; served {100.0 * share:.1f} % of it")
    return above <= ABOVE and share >= THROUGHPUT


def _is_allowed(row: MeasuredWindow, problem: Problem, cap_w: float) -> bool:
    """Return whether a row is below the cap and serves both models at their least rates."""
    if row.status != "ok" or row.power_mean_w is None or row.power_mean_w > cap_w:
        return False
    rates = dict.fromkeys(problem.models, 0.0)
    pairs = zip(row.configuration.tenants, row.tenant_throughputs_per_s, strict=True)
    for tenant, rate in pairs:
        rates[tenant.model] += rate
    return all(rates[model] >= NEAR * least for model, least in problem.min_rates_per_s.items())


def _row_text(row: MeasuredWindow) -> str:
    figures = f"{row.power_mean_w or 0.0:.1f} W, {row.throughput_per_s or 0.0:.0f}/s"
    return f"{tenants_text(row.configuration)}: {figures}"


if __name__ == "__main__":
    raise SystemExit(main())
