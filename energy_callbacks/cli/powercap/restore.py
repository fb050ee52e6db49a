"""``energy-callbacks powercap restore``: restores settings that were changed and left."""

import argparse
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict

from energy_callbacks.cli.common import options
from energy_callbacks.cli.common.messages import logger
from energy_callbacks.cli.powercap import cards
from energy_callbacks.core.errors import CardInUse
from energy_callbacks.powercap.safety.gpu_lock import GpuLocks
from energy_callbacks.powercap.safety.heal import Restored, restore_card
from energy_callbacks.powercap.safety.state_file import all_files

HELP = "restore the settings that were found before they were changed"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the action's arguments."""
    cards.add_devices(parser)


def run(arguments: argparse.Namespace) -> int:
    """Restore what the state files describe; return 1 if a GPU may still be changed, else 0."""
    chosen = (
        None if arguments.devices is None else {card.uuid for card in cards.of_arguments(arguments)}
    )
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
