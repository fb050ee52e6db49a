"""``energy-callbacks powercap plan``: searches for the best configuration under limits."""

import argparse
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from energy_callbacks.cli.common import options
from energy_callbacks.cli.common.messages import logger
from energy_callbacks.cli.powercap.per_model import PER_MODEL, by_model
from energy_callbacks.inference.planner.plan import OBJECTIVES, Infeasible
from energy_callbacks.inference.planner.problem import (
    BATCHES,
    SENSOR_ERROR_PCT,
    STEP_PCT,
    Footprint,
    GpuSetting,
    Problem,
)
from energy_callbacks.inference.planner.search import METHODS, plan
from energy_callbacks.inference.records import IDENTITY, Configuration
from energy_callbacks.inference.traces import read

if TYPE_CHECKING:
    from energy_callbacks.inference.predictor.predictor import Predictor

HELP = "choose shares, batches and clocks of models under a power cap and other limits"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the action's arguments."""
    add = parser.add_argument
    text = "file that energy-callbacks powercap fit has written"
    add("--predictor", type=Path, required=True, metavar="FILE", help=text)
    add("--model", nargs="+", required=True, metavar="M", help="models that may run")
    add("--cap-w", type=float, metavar="W", help="power cap in W (default: none)")
    _add_limits(parser)
    _add_choices(parser)
    add(
        "--objective",
        choices=OBJECTIVES,
        default="throughput",
        help="throughput: most samples/s; energy: least J/sample (default: throughput)",
    )
    add(
        "--method",
        choices=METHODS,
        default="auto",
        help="auto: the best of all methods; or one of them (default: auto)",
    )
    add(
        "--measured",
        nargs="+",
        type=Path,
        metavar="TRACE",
        help="choose among the configurations that were measured in these traces",
    )
    add(
        "--sensor-error-pct",
        type=float,
        default=SENSOR_ERROR_PCT,
        metavar="P",
        help="error of the power sensor in percent of the cap; 5 if the cap is for the power that "
        f"an external meter shows (default: {SENSOR_ERROR_PCT})",
    )
    text = "file of the plan (default: plan.json)"
    add("--out", type=Path, default=Path("plan.json"), metavar="FILE", help=text)
    text = "draw predictions and plan to this file, such as plan.svg"
    add("--picture", type=Path, metavar="FILE", help=text)


def _add_limits(parser: argparse.ArgumentParser) -> None:
    def add(name: str, metavar: str, text: str) -> None:
        parser.add_argument(name, nargs="+", default=[], metavar=metavar, help=text)

    add("--min-rate", "RATE", f"least samples/s: {PER_MODEL}")
    add("--latency-ms", "MS", f"longest time of a batch in ms: {PER_MODEL}")
    add("--weight", "X", f"weight of a sample in the objective: {PER_MODEL} (default: 1)")
    add(
        "--footprint",
        "GIB",
        "memory of a process in GiB, and per sample of its batch: 1.5+0.02 for all models, or "
        "MODEL=1.5+0.02 for each; needed with --memory-gib",
    )
    text = "memory of the GPU in GiB (default: not limited)"
    parser.add_argument("--memory-gib", type=float, metavar="GIB", help=text)


def _add_choices(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    text = "shares that may be chosen, in percent (default: 5 to 100 in steps of 5)"
    add("--share", nargs="+", type=int, metavar="P", help=text)
    text = f"batches that may be chosen (default: {' '.join(map(str, BATCHES))})"
    add("--batch", nargs="+", type=int, default=list(BATCHES), metavar="B", help=text)
    for name, unit, of in (
        ("--sm-mhz", "MHZ", "SM clocks"),
        ("--mem-mhz", "MHZ", "memory clocks"),
        ("--limit-w", "W", "power limits"),
    ):
        text = f"{of} that may be chosen (default: as it is)"
        add(name, nargs="+", type=float, default=[None], metavar=unit, help=text)


def run(arguments: argparse.Namespace) -> int:
    """Print the best plan and write it; return 1 if no plan is possible, else 0."""
    from energy_callbacks.inference.predictor.predictor import Predictor

    predictor = Predictor.load(arguments.predictor)
    measured = None if arguments.measured is None else _measured(arguments.measured, predictor)
    found = plan(_problem(arguments), predictor, method=arguments.method, measured=measured)
    if isinstance(found, Infeasible):
        if arguments.json:
            options.print_json(found.as_json())
        else:
            print(found.text())
        return 1
    found.write(arguments.out)
    if arguments.json:
        options.print_json(found.as_json())
    else:
        print(found.text(arguments.out))
    if arguments.picture is not None:
        from energy_callbacks.inference import pictures

        pictures.write(arguments.picture, found, predictor)
        logger.info("picture: %s", arguments.picture)
    return 0


def _measured(traces: Sequence[Path], predictor: "Predictor") -> list[Configuration]:
    """Return the configurations that were measured on the predictor's GPU, data and mode.

    Raises:
        ValueError: if a trace has windows, but none of these.
    """
    needed = {name: value for name in IDENTITY if (value := predictor.identity[name])}
    found: list[Configuration] = []
    for path in traces:
        windows = [one for one in read(path) if one.status == "ok"]
        chosen = [
            one.configuration
            for one in windows
            if all(getattr(one, name) in ("", value) for name, value in needed.items())
        ]
        if windows and not chosen:
            first = {name: getattr(windows[0], name) for name in needed}
            raise ValueError(
                f"{path} has no window of what the predictor is for, {_words(needed)}; the first "
                f"window has {_words(first)}; name another trace, or fit a predictor to this one"
            )
        found += chosen
    return list(dict.fromkeys(found))


def _words(identity: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value!r}" for name, value in identity.items())


def _problem(arguments: argparse.Namespace) -> Problem:
    models = tuple(arguments.model)
    settings = product(arguments.sm_mhz, arguments.mem_mhz, arguments.limit_w)
    return Problem(
        models=models,
        cap_w=arguments.cap_w,
        settings=tuple(GpuSetting(*one) for one in settings),
        shares_pct=tuple(arguments.share or range(STEP_PCT, 101, STEP_PCT)),
        batches=tuple(sorted(set(arguments.batch))),
        objective=arguments.objective,
        weights=by_model("--weight", arguments.weight, models, float),
        min_rates_per_s=by_model("--min-rate", arguments.min_rate, models, float),
        max_latencies_ms=by_model("--latency-ms", arguments.latency_ms, models, float),
        memory_gib=arguments.memory_gib,
        footprints=by_model("--footprint", arguments.footprint, models, _footprint),
        sensor_error_pct=arguments.sensor_error_pct,
    )


def _footprint(word: str) -> Footprint:
    fixed, _, per_sample = word.partition("+")
    return Footprint(float(fixed), float(per_sample or 0.0))
