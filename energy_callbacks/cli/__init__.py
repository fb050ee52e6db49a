"""The command ``energy-callbacks``: one file of this folder for each of its commands.

A command is a module with ``HELP``, ``add_arguments(parser)`` and ``run(arguments) -> int``; it is
registered by its name in ``COMMANDS`` and imported when it is asked for.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Protocol, cast

from energy_callbacks.core.errors import EnergyCallbacksError
from energy_callbacks.version import __version__

# The order in which --help lists them; each is a file of this folder.
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


class Command(Protocol):
    """The interface of the modules of this folder."""

    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the command's arguments."""
        ...

    def run(self, arguments: argparse.Namespace) -> int:
        """Do it; returns the exit code."""
        ...


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: arguments without the program's name; ``None`` takes those of the process.

    Returns:
        0 on success, 1 if the command failed, 2 if an argument was wrong.
    """
    arguments = build_parser().parse_args(argv)
    command = _load(arguments.command)
    try:
        code = command.run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        return _pipe_closed()
    except (EnergyCallbacksError, OSError, ValueError) as error:
        print(f"energy-callbacks {arguments.command}: {error}", file=sys.stderr)
        return 2 if isinstance(error, ValueError) else 1
    return code


def build_parser() -> argparse.ArgumentParser:
    """All commands with their arguments."""
    parser = argparse.ArgumentParser(
        prog="energy-callbacks", description="Energy as a training metric."
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in COMMANDS:
        command = _load(name)
        command.add_arguments(
            commands.add_parser(name, help=command.HELP, description=command.HELP)
        )
    return parser


def _load(name: str) -> Command:
    return cast("Command", import_module(f"{__name__}.{name}"))


def _pipe_closed() -> int:
    """The reader (``head``) went away: nothing more to say, and no complaint at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
