"""``energy-callbacks powercap status``: shows settings of GPUs, and what can change them."""

import argparse
from dataclasses import asdict

from energy_callbacks.cli.common import options, power_status
from energy_callbacks.cli.common.messages import logger
from energy_callbacks.cli.powercap import cards
from energy_callbacks.core.errors import SourceUnavailable

HELP = "show limits, clocks, and what is needed to change them"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the action's arguments."""
    cards.add_devices(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the settings of the GPUs, who has changed them, and what can change them; return 0."""
    try:
        gpus = cards.of_arguments(arguments)
    except SourceUnavailable as error:
        logger.info("%s", error)
        gpus = []
    found = [power_status.status(card) for card in gpus]
    if arguments.json:
        options.print_json({"gpus": [asdict(one) for one in found]})
    else:
        power_status.print_tables(found)
    return 0
