"""``energy-callbacks powercap verify``: runs a plan, and compares with its prediction."""

import argparse
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Final, get_args

from energy_callbacks.cli.common import options
from energy_callbacks.cli.common.messages import logger
from energy_callbacks.cli.powercap import open_bench
from energy_callbacks.core import formatting
from energy_callbacks.core.tables import aligned
from energy_callbacks.inference.planner.plan import Plan
from energy_callbacks.inference.profile import verify
from energy_callbacks.inference.profile.verify import Comparison, Verification
from energy_callbacks.inference.records import MeasuredWindow, Mode
from energy_callbacks.inference.traces import append

HELP = "run a plan, and compare it with its prediction and its power cap"
# Share of windows of one second in which power must be at most the cap. The margin of a plan is
# that of 95 % of all plans.
_WITHIN: Final = 0.95


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the action's arguments."""
    add = parser.add_argument
    add("plan", type=Path, metavar="PLAN.json", help="file that powercap plan has written")
    add("--mode", choices=get_args(Mode), help="inference or training (default: that of the plan)")
    add("--seconds", type=int, default=30, metavar="N", help="windows of one second (default: 30)")
    text = "time before the first window, in seconds (default: 3)"
    add("--warmup", type=options.seconds_or_zero, default=3.0, metavar="S", help=text)
    add("--out", type=Path, metavar="FILE", help="file to which rows are appended")
    open_bench.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run a plan; return 0 if it holds, otherwise 1."""
    plan = Plan.read(arguments.plan)
    if arguments.seconds < 1:
        raise ValueError(f"--seconds must be at least 1, got {arguments.seconds}")

    open_bench.check_models(arguments, [one.model for one in plan.configuration.tenants])
    made = plan.prediction
    open_bench.check_made_for(arguments, arguments.plan, made.identity, asked=arguments.mode)
    if made.source == "simulated" and not open_bench.is_simulated(arguments):
        logger.warning("the plan is for a simulated GPU; --gpu sim:NAME runs it on one")

    def write(row: MeasuredWindow) -> None:
        if arguments.out is not None:
            append(arguments.out, row)

    with open_bench.opened(arguments, [plan.configuration]) as where:
        found = verify.verify(
            plan,
            where,
            seconds=arguments.seconds,
            warmup_s=arguments.warmup,
            mode=arguments.mode,
            write=write,
        )
    holds = found.holds(_WITHIN)
    if arguments.json:
        options.print_json({"holds": holds, **asdict(found)})
    else:
        print("\n".join(_lines(found, holds=holds)))
    return 0 if holds else 1


def _lines(found: Verification, *, holds: bool) -> Iterator[str]:
    label = " on a simulated GPU" if found.source == "simulated" else ""
    yield f"{found.windows} windows of {verify.WINDOW_S:g} s{label}"
    head = ("", "predicted", "90 % interval", "measured", "difference", "inside")
    compared = (("samples/s", found.throughput), ("W", found.power))
    if rows := [_cells(name, one) for name, one in compared if one]:
        yield from aligned([head, *rows], "<")
    if found.share_within_cap is not None:
        share = formatting.percent(found.share_within_cap)
        yield f"power at most {found.cap_w:g} W in {share} of the windows"
    if found.failure:
        yield f"failed with status {found.failure}"
    yield "the plan holds" if holds else "the plan does not hold"


def _cells(name: str, one: Comparison) -> tuple[str, ...]:
    low, high = (formatting.significant(value, 4) for value in one.predicted[1:])
    return (
        name,
        formatting.significant(one.predicted.value, 4),
        f"{low} to {high}",
        formatting.significant(one.measured, 4),
        f"{100.0 * one.difference:+.1f} %",
        "yes" if one.is_inside else "no",
    )
