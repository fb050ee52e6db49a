"""``energy-callbacks powercap``: power limits and clocks of GPUs, and what they cost.

Each module in ``ACTIONS`` implements an action, as modules of ``cli`` implement subcommands.
``cards.py`` has what the actions that change settings share.
"""

import argparse
from importlib import import_module
from typing import Final

from energy_callbacks.cli.common import options

HELP = "show, change and restore power limits and clocks of GPUs, or measure a command at several"

# Names of the actions, in the order in which --help lists them, and their modules.
ACTIONS: Final = {
    "status": "status",
    "set": "change",
    "restore": "restore",
    "sweep": "sweep",
    "profile": "profile",
    "fit": "fit",
    "predict": "predict",
    "plan": "plan",
    "verify": "verify",
    "serve": "serve",
    "bench": "bench",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    options.add_json(parser)
    actions = parser.add_subparsers(
        dest="action", metavar="ACTION", required=True, help="what to do"
    )
    for name, module_name in ACTIONS.items():
        module = import_module(f"{__name__}.{module_name}")
        text = module.HELP
        action = actions.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        action.set_defaults(act=module.run)
        module.add_arguments(action)
        # The common options are accepted before and after the action, where an option that is not
        # given must not replace one that was given before.
        action.argument_default = argparse.SUPPRESS
        options.add_json(action)
        options.add_verbosity(action)


def run(arguments: argparse.Namespace) -> int:
    """Run the action, and return its exit code."""
    code: int = arguments.act(arguments)
    return code
