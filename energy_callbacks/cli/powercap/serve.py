"""``energy-callbacks powercap serve``: answers requests under a power cap."""

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

from energy_callbacks.cli.common import options
from energy_callbacks.cli.common.messages import logger
from energy_callbacks.cli.powercap import open_bench
from energy_callbacks.cli.powercap.per_model import by_model
from energy_callbacks.core.errors import ActuatorError
from energy_callbacks.inference.control.controllers import CONTROLLERS, create
from energy_callbacks.inference.control.loop import CapSchedule
from energy_callbacks.inference.control.protocols import Abilities, Controller, Need, Window
from energy_callbacks.inference.planner.plan import Plan
from energy_callbacks.inference.planner.problem import BATCHES, Problem
from energy_callbacks.inference.predictor.predictor import Predictor
from energy_callbacks.inference.profile.gpu_settings import GpuSettings
from energy_callbacks.inference.protocols import PredictionModel
from energy_callbacks.inference.records import MeasuredWindow, Prediction, Tenant, needed
from energy_callbacks.inference.serve import arrivals as kinds
from energy_callbacks.inference.serve.arrivals import Arrivals, ClosedLoop, Poisson
from energy_callbacks.inference.serve.fixed import Fixed
from energy_callbacks.inference.serve.machine import (
    WITHOUT_PRIVILEGE,
    LocalMachine,
    Machine,
    SimulatedMachine,
)
from energy_callbacks.inference.serve.server import Server, tenants_text
from energy_callbacks.inference.serve.session import Rates, serve
from energy_callbacks.inference.serve.shadow import ShadowTuner
from energy_callbacks.inference.serve.steps_over_time import StepsOverTime, caps
from energy_callbacks.inference.traces import append
from energy_callbacks.powercap.actuators.protocol import Actuator
from energy_callbacks.powercap.settings import GPU_KNOBS, Knob, KnobRange, Setting

HELP = "answer requests under a power cap"
_FIXED: Final = "fixed"
# Choices among which a plan for two models is found within seconds.
_SHARES: Final = (10, 20, 25, 50, 100)
_BATCHES: Final = (4, 16, 64)
# Requests that arrive at random need more than their mean rate: at 80 % of the capacity, a queue of
# one server with a constant time of service is two requests long on average (M/D/1).
_UTILISATION: Final = 0.8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the action's arguments."""
    add = parser.add_argument
    add(
        "--cap",
        required=True,
        metavar="W",
        help="power cap in W; caps with their starts in seconds, such as 0:300,180:240; or a CSV "
        "file with columns time and cap_w",
    )
    add(
        "--algorithm",
        choices=(*CONTROLLERS, _FIXED),
        default="model",
        help="controller that holds the cap; fixed changes nothing (default: model)",
    )
    add("--model", nargs="+", default=[], metavar="M", help="models (default: those of the plan)")
    text = "predictor that energy-callbacks powercap fit has written"
    add("--params", type=Path, metavar="FILE", help=text)
    text = "plan that energy-callbacks powercap plan has written: limits, and tenants that are kept"
    add("--plan", type=Path, metavar="FILE", help=text)
    text = "shares that may be chosen, in percent (default: 10 20 25 50 100)"
    add("--share", nargs="+", type=int, metavar="P", help=text)
    text = "batches that may be chosen (default: 4 16 64)"
    add("--batch", nargs="+", type=int, metavar="B", help=text)
    add("--seconds", type=int, default=60, metavar="N", help="windows of one second (default: 60)")
    _add_requests(parser)
    add(
        "--enable-shadow",
        action="store_true",
        help="also try neighbouring configurations, and keep better ones",
    )
    text = "file to which a row is appended for each window"
    add("--out", type=Path, metavar="FILE", help=text)
    add(
        "--no-privilege",
        action="store_true",
        help="change no clock and no limit, also of simulated GPUs",
    )
    add(
        "--dry-run",
        action="store_true",
        help="print the first tenants and changes of settings, and serve nothing",
    )
    open_bench.add_arguments(parser)


def _add_requests(parser: argparse.ArgumentParser) -> None:
    requests = parser.add_mutually_exclusive_group()
    add = requests.add_argument
    add(
        "--rate",
        nargs="+",
        metavar="R",
        help="requests per second that arrive at random: a value for all models or MODEL=R for "
        "each, which may change, such as 0:100,60:300 (default: a closed loop)",
    )
    text = "CSV file with arrivals: columns time_s and, for several models, model"
    add("--arrivals", type=Path, metavar="FILE", help=text)
    text = "clients of each model in a closed loop (default: as many as keep all tenants busy)"
    add("--clients", type=int, metavar="N", help=text)


def run(arguments: argparse.Namespace) -> int:
    """Serve, and print the report; return 0.

    Raises:
        KeyboardInterrupt: after the report, if Ctrl-C has ended the serving.
    """
    plan = None if arguments.plan is None else Plan.read(arguments.plan)
    chosen = _Chosen(arguments, plan)
    open_bench.check_models(arguments, chosen.models)
    is_simulated = open_bench.is_simulated(arguments)
    schedule = caps(arguments.cap, None if is_simulated else time.time())
    if arguments.dry_run:
        _print_plan(arguments, chosen, schedule)
        return 0
    with _opened(arguments, chosen.needs) as machine:
        server = Server(machine, _arrivals(arguments, chosen.models), write=_writer(arguments.out))
        report = serve(
            server,
            chosen.controller,
            schedule,
            seconds=arguments.seconds,
            on_window=_progress,
        )
    if arguments.json:
        options.print_json(report.as_json())
    else:
        print(report.text())
    if report.is_interrupted:
        raise KeyboardInterrupt
    return 0


class _Chosen:
    """What the options choose: models, their limits, and controllers for rates.

    Raises:
        ValueError: if options are missing, or if the plan has no tenant for a model.
    """

    def __init__(self, arguments: argparse.Namespace, plan: Plan | None) -> None:
        self._arguments, self._plan = arguments, plan
        planned = () if plan is None else [one.model for one in plan.configuration.tenants]
        self.models: Sequence[str] = arguments.model or tuple(dict.fromkeys(planned))
        if not self.models:
            raise ValueError("serve needs --model, or --plan with the models")
        if plan is not None and (missing := set(self.models) - set(planned)):
            raise ValueError(
                f"the plan has no tenant for {', '.join(sorted(missing))}; make a plan that has, "
                f"or name only models of its tenants, {', '.join(sorted(set(planned)))}"
            )
        if arguments.algorithm == _FIXED and plan is None:
            raise ValueError("--algorithm fixed needs --plan")
        if arguments.enable_shadow and arguments.params is None:
            raise ValueError("--enable-shadow needs --params")
        self._predictor: PredictionModel = _NoPredictor()
        check = open_bench.check_made_for
        if arguments.params is not None:
            self._predictor = fitted = Predictor.load(arguments.params)
            check(arguments, arguments.params, fitted.identity, asked="infer")
        if plan is not None:
            check(arguments, arguments.plan, plan.prediction.identity, asked="infer")
        self.needs = self.controller(dict.fromkeys(self.models)).needs

    def controller(self, rates: Rates) -> Controller:
        """Return a new controller for rates that must be served."""
        given, plan = self._arguments, self._plan
        problem = self._problem(rates)
        if given.algorithm == _FIXED:
            assert plan is not None
            inner: Controller = Fixed(plan.configuration)
        else:
            partition: tuple[Tenant, ...] | None = plan.configuration.tenants if plan else None
            inner = create(given.algorithm, problem, self._predictor, partition=partition)
        if not given.enable_shadow:
            return inner
        if plan is None and not given.batch:  # a neighbour is quickly predicted
            problem = replace(problem, batches=BATCHES)
        return ShadowTuner(inner, problem, self._predictor)

    def _problem(self, rates: Rates) -> Problem:
        given = self._arguments
        base = (
            Problem(models=tuple(self.models), shares_pct=_SHARES, batches=_BATCHES)
            if self._plan is None
            else self._plan.problem
        )
        if given.share:
            base = replace(base, shares_pct=tuple(given.share))
        if given.batch:
            base = replace(base, batches=tuple(sorted(set(given.batch))))
        least: dict[str, float] = dict(base.min_rates_per_s)
        for model, rate in rates.items():
            if rate is not None:
                least[model] = max(rate / _UTILISATION, least.get(model, 0.0))
        return replace(base, cap_w=None, min_rates_per_s=least)


class _NoPredictor:
    """Stands in for a predictor of controllers that use none."""

    def predict(self, configuration: object) -> Prediction:  # noqa: ARG002
        raise ValueError(
            "this algorithm needs a predictor: name one with --params, which energy-callbacks "
            "powercap fit writes"
        )

    def predict_many(self, configurations: object) -> Sequence[Prediction]:
        return [self.predict(configurations)]


def _opened(
    arguments: argparse.Namespace, needs: frozenset[Need]
) -> AbstractContextManager[Machine]:
    """Return what serves; settings may be changed with consent, if the controller needs them."""
    if open_bench.is_simulated(arguments):
        can: frozenset[Need] = WITHOUT_PRIVILEGE.union(_wanted(arguments, needs))
        return nullcontext(SimulatedMachine(open_bench.simulated(arguments), can=can))
    where = open_bench.announced_device(arguments)
    settings, ranges = _settings(arguments, needs)
    return LocalMachine(
        where,
        data=arguments.data,
        settings=settings,
        ranges=ranges,
        load_s=arguments.load_timeout,
    )


def _wanted(arguments: argparse.Namespace, needs: frozenset[Need]) -> list[Knob]:
    """Return the settings of use: those needed, and the limit in place of clocks."""
    if arguments.no_privilege:
        return []
    wanted: list[Knob] = [knob for knob in GPU_KNOBS if knob in needs]
    if "clock" in wanted and "limit" not in wanted:
        wanted.append("limit")
    return wanted


def _settings(
    arguments: argparse.Namespace, needs: frozenset[Need]
) -> tuple[GpuSettings | None, dict[Knob, KnobRange]]:
    """Return what changes the settings of the GPU; nothing without need or consent."""
    wanted, uuid = _wanted(arguments, needs), open_bench.device(arguments.gpu).uuid
    if not wanted or uuid is None:
        return None, {}
    if not arguments.yes:
        logger.info("clocks and limits stay as they are; --yes allows to change them")
        return None, {}
    actuator = _actuator(uuid, wanted)
    ranges = open_bench.ranges(actuator, uuid, wanted)
    return GpuSettings(actuator, uuid, allow_changes=True), ranges


def _actuator(uuid: str, knobs: Sequence[Knob]) -> Actuator:
    """Return what can change the first of some settings that can be changed.

    Raises:
        ActuatorError: if none of them can.
    """
    for knob in knobs[:-1]:
        with suppress(ActuatorError):
            return open_bench.actuator(uuid, [knob])
    return open_bench.actuator(uuid, knobs[-1:])


def _arrivals(arguments: argparse.Namespace, models: Sequence[str]) -> Mapping[str, Arrivals]:
    if arguments.arrivals is not None:
        return kinds.read(arguments.arrivals, models)
    if arguments.rate is None:
        return {model: ClosedLoop(arguments.clients) for model in models}
    rates = by_model("--rate", arguments.rate, tuple(models), StepsOverTime.parse)
    if missing := set(models) - set(rates):
        raise ValueError(f"--rate has no value for {', '.join(sorted(missing))}")
    if unknown := set(rates) - set(models):
        raise ValueError(
            f"--rate names {', '.join(sorted(unknown))}; the models are {', '.join(models)}"
        )
    return {
        model: Poisson(rates[model], seed=arguments.seed + at) for at, model in enumerate(models)
    }


def _writer(path: Path | None) -> Callable[[MeasuredWindow], None]:
    def write(row: MeasuredWindow) -> None:
        if path is not None:
            append(path, row)

    return write


def _progress(window: Window, cap_w: float) -> None:
    mark = "" if window.is_steady else ", not steady"
    logger.info(
        "%.1f W of %g W, %.4g requests/s, duty %.2f, %s%s",
        window.power_mean_w,
        cap_w,
        window.throughput_per_s,
        window.point.duty,
        tenants_text(window.point.configuration),
        mark,
    )


def _print_plan(arguments: argparse.Namespace, chosen: _Chosen, schedule: CapSchedule) -> None:
    """Print the first operating point of each cap, and the changes of settings."""
    arrivals = _arrivals(arguments, chosen.models)
    controller = chosen.controller({model: one.rate_per_s(0.0) for model, one in arrivals.items()})
    abilities = _abilities(arguments, controller.needs)
    points = [
        controller.cap_changed(cap_w) if at else controller.start(cap_w, abilities)
        for at, (_, cap_w) in enumerate(schedule.steps)
    ]
    if arguments.json:
        options.print_json(
            [
                {"start_s": start_s, "cap_w": cap_w, "point": asdict(point)}
                for (start_s, cap_w), point in zip(schedule.steps, points, strict=True)
            ]
        )
        return
    if controller.degraded:
        print(f"degraded: {controller.degraded}")
    for (start_s, cap_w), point in zip(schedule.steps, points, strict=True):
        tenants = tenants_text(point.configuration)
        print(f"from {start_s:g} s, cap {cap_w:g} W: {tenants}, duty {point.duty:.3g}")
        for knob, value in needed(point.configuration).items():
            print(f"privileged: set {Setting(knob=knob, value=value)}")
    print(f"{arguments.seconds} s; nothing was served")


def _abilities(arguments: argparse.Namespace, needs: frozenset[Need]) -> Abilities:
    if open_bench.is_simulated(arguments):
        gpu = open_bench.simulated(arguments)
        ranges: dict[Knob, KnobRange] = {
            knob: gpu.range(knob) for knob in _wanted(arguments, needs)
        }
    else:
        _, ranges = _settings(arguments, needs)
    can: frozenset[Need] = WITHOUT_PRIVILEGE.union(ranges)
    return Abilities(can=can, ranges=ranges)
