"""``energy-callbacks powercap set``: changes settings of GPUs until they are restored."""

import argparse
from dataclasses import asdict

from energy_callbacks.cli.common import options
from energy_callbacks.cli.common.messages import logger
from energy_callbacks.cli.powercap import cards
from energy_callbacks.powercap.safety.changed_cards import ChangedCards
from energy_callbacks.powercap.settings import Knob, Setting

HELP = "set a power limit or clocks until restore is called"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the action's arguments."""
    cards.add_devices(parser)
    add = parser.add_argument
    add("--limit-w", type=float, metavar="W", help="power limit in W")
    add("--clock-mhz", type=float, metavar="MHZ", help="highest SM clock in MHz")
    cards.add_consent(parser)


def run(arguments: argparse.Namespace) -> int:
    """Change settings, which stay until ``restore``; return 0."""
    given: list[tuple[Knob, float | None]] = [
        ("limit", arguments.limit_w),
        ("clock", arguments.clock_mhz),
    ]
    settings = [Setting(knob=knob, value=value) for knob, value in given if value is not None]
    if not settings:
        raise ValueError("set needs --limit-w or --clock-mhz")
    uuids = cards.uuids_to_change(arguments)
    for setting in settings:
        actuator = cards.actuator(uuids, setting.knob)
        with ChangedCards(actuator, uuids, allow_changes=arguments.yes, keep=True) as changed:
            changed.set(setting)
        logger.info("%s on %d GPUs, through %s", setting, len(uuids), actuator.name)
    logger.info(
        "No process watches these settings. They stay until energy-callbacks powercap restore, or "
        "until the driver is unloaded."
    )
    if arguments.json:
        options.print_json({"uuids": uuids, "settings": [asdict(one) for one in settings]})
    return 0
