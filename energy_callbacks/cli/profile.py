"""``energy-callbacks profile``: a training script, untouched, with profilers on."""

import argparse
import re
import sys
from pathlib import Path

from energy_callbacks.cli import run as measured
from energy_callbacks.profiling import launch

HELP = "run a Python training script, untouched, with profilers on"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments: a switch for each profiler, and what ``run`` has."""
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
    """Run it as ``energy-callbacks run`` does; end as it has ended."""
    python, program = _split(measured.words(arguments))
    named = program[1] if program[0] == "-m" else Path(program[0]).stem
    arguments.name = arguments.name or named
    # -P: a json.py in the working folder is none of ours.
    launcher = [python, "-P", "-m", "energy_callbacks.profiling.launch"]
    return measured.measure(arguments, [*launcher, *launch.options(arguments), "--", *program])


def _split(words: list[str]) -> tuple[str, list[str]]:
    """The interpreter, and the script or module with its arguments.

    Raises:
        ValueError: if there is none.
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
