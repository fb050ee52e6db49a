"""``energy-callbacks powercap``: shows, changes and restores power limits and clocks of GPUs."""

import argparse
import os
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Final

from energy_callbacks.accounting.journal.launch import new_folder
from energy_callbacks.cli.common import messages, options, power_status
from energy_callbacks.cli.common.messages import logger
from energy_callbacks.cli.run import words
from energy_callbacks.core.config import is_disabled
from energy_callbacks.core.errors import CardInUse, SourceUnavailable
from energy_callbacks.matrix import summary, sweep
from energy_callbacks.matrix.attempts import Results
from energy_callbacks.matrix.progress import JobProgress
from energy_callbacks.powercap.actuators import choose as actuators
from energy_callbacks.powercap.actuators.protocol import Actuator
from energy_callbacks.powercap.safety.changed_cards import ChangedCards
from energy_callbacks.powercap.safety.gpu_lock import GpuLocks
from energy_callbacks.powercap.safety.heal import Restored, restore_card
from energy_callbacks.powercap.safety.state_file import all_files
from energy_callbacks.powercap.settings import Knob, KnobRange, Setting
from energy_callbacks.sensing import devices
from energy_callbacks.sensing.devices import GpuInfo
from energy_callbacks.sensing.sources.nvidia.source import inventory

HELP = "show, change and restore power limits and clocks of GPUs, or measure a command at several"

_CONSENT: Final = "consent to change settings of the GPUs"
_DEVICES: Final = (
    "GPUs: all, or NVML indices and UUIDs, such as 0,1 (default: those in CUDA_VISIBLE_DEVICES)"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    options.add_json(parser)
    actions = parser.add_subparsers(
        dest="action", metavar="ACTION", required=True, help="what to do"
    )

    def action(
        name: str, function: Callable[[argparse.Namespace], int], text: str
    ) -> argparse.ArgumentParser:
        # The common options are accepted before and after the action, where an option that is not
        # given must not replace one that was given before.
        one = actions.add_parser(
            name,
            help=text,
            description=f"{text[0].upper()}{text[1:]}.",
            argument_default=argparse.SUPPRESS,
        )
        one.set_defaults(act=function)
        one.add_argument(
            "--devices", type=options.device_list, default=None, metavar="LIST", help=_DEVICES
        )
        options.add_json(one)
        options.add_verbosity(one)
        return one

    action("status", _status, "show limits, clocks, and what is needed to change them")
    _add_set(action("set", _set, "set a power limit or clocks until restore is called"))
    action("restore", _restore, "restore the settings that were found before they were changed")
    _add_sweep(action("sweep", _sweep, "measure a command at several limits or clocks"))


def _add_set(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--limit-w", type=float, default=None, metavar="W", help="power limit in W")
    add("--clock-mhz", type=float, default=None, metavar="MHZ", help="highest SM clock in MHz")
    add("--yes", action="store_true", default=False, help=_CONSENT)


def _add_sweep(parser: argparse.ArgumentParser) -> None:
    parser.usage = "energy-callbacks powercap sweep [options] -- COMMAND [ARGUMENTS]"
    knob = parser.add_mutually_exclusive_group(required=True)
    add = knob.add_argument
    add("--limits", type=_numbers, default=None, metavar="LIST", help="power limits in W: 300,400")
    add(
        "--clocks",
        type=_numbers,
        default=None,
        metavar="LIST",
        help="highest SM clocks in MHz: 1200,1500",
    )
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
        default=None,
        metavar="DIR",
        help="results folder; runs that have succeeded in it are not repeated (default: "
        "energy_runs/sweep)",
    )
    add("--yes", action="store_true", default=False, help=_CONSENT)
    command = "-- COMMAND [ARGUMENTS]"
    add("words", nargs=argparse.REMAINDER, default=[], metavar=command, help="command to measure")


def _numbers(word: str) -> list[float]:
    try:
        return [float(one) for one in word.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a list such as 300,400, got {word!r}") from None


def run(arguments: argparse.Namespace) -> int:
    """Run the action, and return its exit code."""
    code: int = arguments.act(arguments)
    return code


def _cards(arguments: argparse.Namespace) -> list[GpuInfo]:
    """Return the GPUs that ``--devices`` names.

    Raises:
        ValueError: if a GPU does not exist.
        SourceUnavailable: if there is no driver, or if the environment does not identify the GPUs.
    """
    cards = inventory()
    if arguments.devices in (None, "auto"):
        uuids = {one.gpu.uuid for one in devices.resolve(os.environ, cards)}
    else:
        uuids = {uuid for group in devices.choose(arguments.devices, cards) for uuid in group}
    return [card for card in cards if card.uuid in uuids or uuids.intersection(card.mig_uuids)]


def _uuids(arguments: argparse.Namespace) -> list[str]:
    """Return the UUIDs of the GPUs to change.

    Raises:
        ValueError: without consent, or if there is no GPU.
    """
    if not arguments.yes:
        raise ValueError(f"{arguments.action} changes settings of GPUs; add --yes to consent")
    uuids = [card.uuid for card in _cards(arguments)]
    if not uuids:
        raise ValueError("there is no GPU among --devices or in CUDA_VISIBLE_DEVICES")
    return uuids


def _actuator(uuids: Sequence[str], knob: Knob) -> Actuator:
    return actuators.choose(uuids, knob, names=power_status.ACTUATORS)


def _status(arguments: argparse.Namespace) -> int:
    """Print the settings of the GPUs, who has changed them, and what can change them; return 0."""
    try:
        cards = _cards(arguments)
    except SourceUnavailable as error:
        logger.info("%s", error)
        cards = []
    found = [power_status.status(card) for card in cards]
    if arguments.json:
        options.print_json({"gpus": [asdict(one) for one in found]})
    else:
        power_status.print_tables(found)
    return 0


def _set(arguments: argparse.Namespace) -> int:
    """Change settings, which stay until ``restore``; return 0."""
    given: list[tuple[Knob, float | None]] = [
        ("limit", arguments.limit_w),
        ("clock", arguments.clock_mhz),
    ]
    settings = [Setting(knob=knob, value=value) for knob, value in given if value is not None]
    if not settings:
        raise ValueError("set needs --limit-w or --clock-mhz")
    uuids = _uuids(arguments)
    for setting in settings:
        actuator = _actuator(uuids, setting.knob)
        with ChangedCards(actuator, uuids, allow_changes=arguments.yes, keep=True) as cards:
            cards.set(setting)
        logger.info("%s on %d GPUs, through %s", setting, len(uuids), actuator.name)
    logger.info(
        "No process watches these settings. They stay until energy-callbacks powercap restore, or "
        "until the driver is unloaded."
    )
    if arguments.json:
        options.print_json({"uuids": uuids, "settings": [asdict(one) for one in settings]})
    return 0


def _restore(arguments: argparse.Namespace) -> int:
    """Restore what the state files describe; return 1 if a GPU may still be changed, else 0."""
    chosen = None if arguments.devices is None else {card.uuid for card in _cards(arguments)}
    done: list[Restored] = []
    is_locked = False
    for file in all_files():
        card = file.read()
        if card is None or (chosen is not None and card.uuid not in chosen):
            continue
        try:
            with closing(GpuLocks([card.uuid], None)):
                done += restore_card(file)
        except CardInUse as error:
            logger.error("%s", error)
            is_locked = True
    _print_restored(done, as_json=arguments.json)
    return int(is_locked or any(one.is_problem for one in done))


def _print_restored(done: Sequence[Restored], *, as_json: bool) -> None:
    if as_json:
        options.print_json([asdict(one) for one in done])
        return
    for one in done:
        print(one.message)
    if not done:
        logger.info("nothing to restore")


def _sweep(arguments: argparse.Namespace) -> int:
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
    uuids = _uuids(arguments)
    actuator = _actuator(uuids, knob)
    with ChangedCards(actuator, uuids, allow_changes=arguments.yes) as cards:
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
            signal_number = sweep.run(plan, results, cards, progress)
    summary.conclude(plan, results, as_json=arguments.json)
    if signal_number is not None:
        return 128 + signal_number
    return int(bool(results.missing(plan.jobs())))


def _found(knob: Knob, ranges: Sequence[KnobRange]) -> Setting | None:
    """Return the setting that all GPUs have now; ``None`` if they differ."""
    present = {one.present for one in ranges}
    return Setting(knob=knob, value=present.pop()) if len(present) == 1 else None
