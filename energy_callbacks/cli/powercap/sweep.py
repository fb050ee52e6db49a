"""``energy-callbacks powercap sweep``: measures a command at several settings of GPUs."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from energy_callbacks.accounting.journal.launch import new_folder
from energy_callbacks.cli.common import messages
from energy_callbacks.cli.powercap import cards
from energy_callbacks.cli.run import words
from energy_callbacks.core.config import is_disabled
from energy_callbacks.matrix import summary, sweep
from energy_callbacks.matrix.attempts import Results
from energy_callbacks.matrix.progress import JobProgress
from energy_callbacks.powercap.safety.changed_cards import ChangedCards
from energy_callbacks.powercap.settings import Knob, KnobRange, Setting

HELP = "measure a command at several limits or clocks"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the action's arguments."""
    cards.add_devices(parser)
    parser.usage = "energy-callbacks powercap sweep [options] -- COMMAND [ARGUMENTS]"
    knob = parser.add_mutually_exclusive_group(required=True)
    add = knob.add_argument
    add("--limits", type=_numbers, metavar="LIST", help="power limits in W: 300,400")
    add("--clocks", type=_numbers, metavar="LIST", help="highest SM clocks in MHz: 1200,1500")
    add = parser.add_argument
    add("--repeats", type=int, default=3, metavar="N", help="runs of each setting (default: 3)")
    add(
        "--cool-down",
        type=float,
        default=20.0,
        metavar="S",
        help="pause between two runs in seconds (default: 20)",
    )
    add(
        "--out",
        type=Path,
        metavar="DIR",
        help="results folder; runs that have succeeded in it are not repeated (default: "
        "energy_runs/sweep)",
    )
    cards.add_consent(parser)
    command = "-- COMMAND [ARGUMENTS]"
    add("words", nargs=argparse.REMAINDER, default=[], metavar=command, help="command to measure")


def _numbers(word: str) -> list[float]:
    try:
        return [float(one) for one in word.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a list such as 300,400, got {word!r}") from None


def run(arguments: argparse.Namespace) -> int:
    """Measure a command at several settings, and print the comparison.

    Returns:
        0 if each run has succeeded, otherwise 1. If a signal interrupted the runs: 128 plus the
        number of the signal.
    """
    if is_disabled():
        raise ValueError("ENERGY_CALLBACKS_DISABLED is set, so nothing can be measured; unset it")
    command = words(arguments)
    if not command:
        raise ValueError("there is no command; write it after --: sweep -- python train.py")
    knob: Knob = "limit" if arguments.limits else "clock"
    settings = [Setting(knob=knob, value=one) for one in arguments.limits or arguments.clocks]
    uuids = cards.uuids_to_change(arguments)
    actuator = cards.actuator(uuids, knob)
    with ChangedCards(actuator, uuids, allow_changes=arguments.yes) as changed:
        ranges = [actuator.range(uuid, knob) for uuid in uuids]
        for setting in settings:
            for one in ranges:
                one.check(setting.value or 0.0)
        plan = sweep.plan(
            command,
            settings,
            baseline=_found(knob, ranges),
            repeats=arguments.repeats,
            cool_down_s=arguments.cool_down,
            folder=Path.cwd(),
        )
        folder = arguments.out or new_folder(Path("energy_runs") / "sweep")
        results = Results(
            folder=folder.resolve(), cool_down_s=arguments.cool_down, working_folder=Path.cwd()
        )
        count = len(plan.jobs())
        done = count - len(results.missing(plan.jobs()))
        with (
            results.locked(),
            JobProgress(count, done, is_quiet=messages.is_quiet()) as progress,
        ):
            signal_number = sweep.run(plan, results, changed, progress)
    summary.conclude(plan, results, as_json=arguments.json)
    if signal_number is not None:
        return 128 + signal_number
    return int(bool(results.missing(plan.jobs())))


def _found(knob: Knob, ranges: Sequence[KnobRange]) -> Setting | None:
    """Return the setting that all GPUs have now; ``None`` if they differ."""
    present = {one.present for one in ranges}
    return Setting(knob=knob, value=present.pop()) if len(present) == 1 else None
