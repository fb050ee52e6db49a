"""``energy-callbacks profile``: runs an unmodified training script with profilers."""

import argparse
import re
import sys
from pathlib import Path

from energy_callbacks.cli import run as measured
from energy_callbacks.profiling import launch

HELP = "run an unmodified Python training script with profilers"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments: options of the profilers, and the options of ``run``."""
    parser.usage = "energy-callbacks profile [options] -- SCRIPT.py [ARGUMENTS]"
    launch.add_options(parser)
    measured.add_settings(parser)
    parser.add_argument(
        "words",
        nargs=argparse.REMAINDER,
        metavar="-- SCRIPT.py [ARGUMENTS]",
        help="script to run; -m MODULE and python SCRIPT.py are accepted, too",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the script with profilers and measure it as ``energy-callbacks run`` does.

    Returns:
        The exit code of the script.
    """
    python, program = _split(measured.words(arguments))
    program_name = program[1] if program[0] == "-m" else Path(program[0]).stem
    arguments.name = arguments.name or program_name
    # -P keeps the launcher from importing modules, such as json, from the working folder.
    launcher = [python, "-P", "-m", "energy_callbacks.profiling.launch"]
    return measured.measure(arguments, [*launcher, *launch.options(arguments), "--", *program])


def _split(words: list[str]) -> tuple[str, list[str]]:
    """Return the Python interpreter, and the script or module with its arguments.

    If ``words`` does not start with an interpreter, the interpreter of this process is returned.

    Raises:
        ValueError: if no script or module is given, or the script does not exist.
    """
    python = sys.executable
    if words and re.fullmatch(r"python[\d.]*", Path(words[0]).name):
        python, *words = words
    if not words or words == ["-m"]:
        raise ValueError("there is no script; write it after --: profile -- train.py --lr 1e-3")
    if words[0] != "-m" and not Path(words[0]).is_file():
        raise ValueError(
            f"{words[0]!r} is not a Python file; give a Python file or -m MODULE, or use "
            "energy-callbacks run for other programs"
        )
    return python, words
