"""The command ``energy-callbacks``; each module in ``COMMANDS`` implements a subcommand.

Each of these modules has the text ``HELP``, ``add_arguments(parser)``, which declares the arguments
of the subcommand, and ``run(arguments) -> int``, which runs it and returns the exit code.
``common/`` has what several of them use.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Final

from energy_callbacks.cli.common import messages, options
from energy_callbacks.cli.common.completion import PrintCompletion
from energy_callbacks.core.errors import EnergyCallbacksError, JournalError
from energy_callbacks.version import __version__

# Names of the subcommands, in the order in which --help lists them.
COMMANDS: tuple[str, ...] = (
    "demo",
    "run",
    "profile",
    "matrix",
    "list",
    "report",
    "compare",
    "query",
    "project",
    "tune",
    "powercap",
    "monitor",
    "doctor",
)
# Minimum ratio of ``difflib`` between an unknown option and one that the message proposes; 0.94 for
# --contry and --country, 0.62 for --foo and --format.
_SIMILAR: Final = 0.75
_INTERRUPTED: Final = 130  # 128 + SIGINT, as in a shell
_DESCRIPTION = "Measure the energy of trainings and other programs."
_EXIT_CODES = (
    "Exit codes: 0 for success, 1 if the command failed, 2 if an argument or an input file is "
    "wrong. run and profile exit with the code of the measured program."
)
# Errors that are caused by what the user passes to a command, among ``_EXPECTED``.
_WRONG_PATH = (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError)
_WRONG_INPUT = (ValueError, JournalError, *_WRONG_PATH)
_EXPECTED = (EnergyCallbacksError, OSError, ValueError)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand.

    Args:
        argv: arguments without the program's name; ``None`` for ``sys.argv[1:]``.

    Returns:
        The exit code of the subcommand, 0 on success; 1 if it failed with an error, 2 if an
        argument or an input file was wrong, 130 after Ctrl-C.
    """
    code = 0
    if sys.stdout is None:  # the descriptor is closed
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - until the exit
    options.replace_unprintable()
    try:
        with options.until_reader_ends():
            try:
                arguments = _parse(argv)
            except SystemExit:
                sys.stdout.flush()  # of the text of --help: at the exit, an error gives code 120
                raise
            with messages.on_stderr(quiet=arguments.quiet, verbose=arguments.verbose):
                code = _run(arguments)
    except KeyboardInterrupt:  # while modules are imported, which may take a second
        print("energy-callbacks: interrupted", file=sys.stderr)
        return _INTERRUPTED
    except OSError as error:
        print(f"energy-callbacks: {_message(error)}", file=sys.stderr)
        return 1
    return code


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the arguments; for an unknown option, exit with a message that has a similar one."""
    words = sys.argv[1:] if argv is None else argv
    # The modules of all subcommands take longer to import than those that one of them needs.
    names = words[:1] if words and words[0] in COMMANDS else COMMANDS
    arguments, unknown = build_parser(names).parse_known_args(words)
    if unknown:
        command: argparse.ArgumentParser = arguments.parser
        known = command._option_string_actions  # noqa: SLF001 - argparse has no public access
        given = [word.partition("=")[0] for word in unknown]
        close = [one for name in given for one in get_close_matches(name, known, 1, _SIMILAR)]
        hint = f"; did you mean {', '.join(close)}?" if close else ""
        if early := [name for name in given if name in known]:
            hint = f"; write {' '.join(early)} after {arguments.command}"
        command.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
    return arguments


def _run(arguments: argparse.Namespace) -> int:
    """Run a subcommand and return its exit code; print its errors.

    The exit code is 0 if the reader of standard output ends before the subcommand has ended.
    """
    code: int = 0
    try:
        with options.until_reader_ends():
            code = arguments.run(arguments)
    except KeyboardInterrupt:
        messages.logger.error("energy-callbacks %s: interrupted", arguments.command)
        return _INTERRUPTED
    except _EXPECTED as error:
        text = f"energy-callbacks {arguments.command}: {_message(error)}"
        messages.logger.error("%s", text, exc_info=arguments.verbose)
        return 2 if isinstance(error, _WRONG_INPUT) else 1
    return code


def _message(error: Exception) -> str:
    """Return the message of an error, without the error number of the operating system."""
    if isinstance(error, OSError) and error.strerror:
        name = error.filename
        if name is None and options.discard_full_output():
            name = "standard output"
        if name is not None:
            return f"{name}: {error.strerror}"
    return str(error)


def build_parser(names: Sequence[str] = COMMANDS) -> argparse.ArgumentParser:
    """Return the parser of subcommands and their arguments, by default of all subcommands."""
    parser = argparse.ArgumentParser(
        prog="energy-callbacks", description=_DESCRIPTION, epilog=_EXIT_CODES
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    parser.add_argument(
        "--print-completion",
        action=PrintCompletion,
        metavar="SHELL",
        help="print a script that completes commands and options in bash, zsh, fish, tcsh or "
        "PowerShell",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in names:
        module = import_module(f"{__name__}.{name}")
        text = module.HELP
        command = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        command.set_defaults(run=module.run, parser=command)
        module.add_arguments(command)
        options.add_verbosity(command)
    return parser
