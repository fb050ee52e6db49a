"""``energy-callbacks profile``: runs an unmodified training script under profilers."""

import argparse
import re
import sys
from pathlib import Path

from energy_callbacks.cli import run as measured
from energy_callbacks.profiling import launch

HELP = "run a Python training script, untouched, with profilers on"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments: options of the profilers, and the options of ``run``."""
    parser.usage = "energy-callbacks profile [options] -- SCRIPT.py [ARGUMENTS]"
    launch.add_options(parser)
    measured.add_settings(parser)
    parser.add_argument(
        "words",
        nargs=argparse.REMAINDER,
        metavar="-- SCRIPT.py [ARGUMENTS]",
        help="what to run; -m MODULE and python SCRIPT.py are understood, too",
    )


def run(arguments: argparse.Namespace) -> int:
    """Measure the script as ``energy-callbacks run`` does, and return its exit code."""
    python, program = _split(measured.words(arguments))
    program_name = program[1] if program[0] == "-m" else Path(program[0]).stem
    arguments.name = arguments.name or program_name
    # -P: the launcher must not import modules from the working folder, such as a json.py there.
    launcher = [python, "-P", "-m", "energy_callbacks.profiling.launch"]
    return measured.measure(arguments, [*launcher, *launch.options(arguments), "--", *program])


def _split(words: list[str]) -> tuple[str, list[str]]:
    """Return the interpreter, and the script or module with its arguments.

    Raises:
        ValueError: if no script or module is given, or the script does not exist.
    """
    python = sys.executable
    if words and re.fullmatch(r"python[\d.]*", Path(words[0]).name):
        python, *words = words
    if not words or words == ["-m"]:
        raise ValueError("no program: write it after --, as in: profile -- train.py --lr 1e-3")
    if words[0] != "-m" and not Path(words[0]).is_file():
        raise ValueError(
            f"there is no script {words[0]!r}; give a Python file or -m MODULE, "
            "and any other program to: energy-callbacks run"
        )
    return python, words
