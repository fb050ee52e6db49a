"""The command ``energy-callbacks``; each module in ``COMMANDS`` implements a subcommand.

Each of these modules has the text ``HELP``, ``add_arguments(parser)``, which declares the arguments
of the subcommand, and ``run(arguments) -> int``, which runs it and returns the exit code.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from energy_callbacks.core.errors import EnergyCallbacksError
from energy_callbacks.version import __version__

# Names of the subcommands, in the order in which --help lists them.
COMMANDS: tuple[str, ...] = (
    "demo",
    "run",
    "profile",
    "matrix",
    "report",
    "compare",
    "query",
    "project",
    "tune",
    "monitor",
    "doctor",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand.

    Args:
        argv: arguments without the program's name; ``None`` for ``sys.argv[1:]``.

    Returns:
        The exit code of the subcommand, 0 on success; 1 if it failed with an error, 2 if an
        argument was wrong.
    """
    arguments = build_parser().parse_args(argv)
    try:
        code: int = arguments.run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of the output, such as ``head``, has ended: the flush at exit must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (EnergyCallbacksError, OSError, ValueError) as error:
        print(f"energy-callbacks {arguments.command}: {error}", file=sys.stderr)
        return 2 if isinstance(error, ValueError) else 1
    return code


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all subcommands and their arguments."""
    parser = argparse.ArgumentParser(
        prog="energy-callbacks", description="Energy as a training metric."
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in COMMANDS:
        module = import_module(f"{__name__}.{name}")
        command = commands.add_parser(name, help=module.HELP, description=module.HELP)
        command.set_defaults(run=module.run)
        module.add_arguments(command)
    return parser
