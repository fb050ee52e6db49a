"""``energy-callbacks tune``: searches for the best batch size of a Python training step."""

import argparse
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Final, cast

from energy_callbacks.cli.common import options
from energy_callbacks.tuning import TuningOptions, tune_batch_size
from energy_callbacks.tuning.options import DEFAULTS, OPTIONS
from energy_callbacks.tuning.search.settings import OBJECTIVES

# Help texts of options that take a number.
_NUMBERS: Final = {
    "min_size": "smallest batch size",
    "max_size": "largest batch size",
    "multiple_of": "try only multiples of this number (default: 8; 1 with --objective largest, "
    "--powers-of-two or --global-batch-size)",
    "start_size": "batch size to try first, such as the current one",
    "memory_margin": "share of the memory of the device that must stay free",
    "max_trials": "maximum number of trials, repeats included (default: 12; 20 with --objective "
    "largest)",
    "global_batch_size": "samples per optimizer step; only its divisors are tried, and the "
    "function is called as step(size, accumulation)",
}

HELP = "find the best batch size of a training step by speed, energy or memory"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add = parser.add_argument
    add(
        "step",
        metavar="MODULE:FUNCTION",
        help="function step(size) that runs one training step with a batch of this size, or a "
        "function without arguments that returns such a function",
    )
    add(
        "--objective",
        type=_objective,
        metavar="WHAT",
        help=f"{', '.join(OBJECTIVES)}; or the weight of energy against time, from 0 to 1; knee "
        "is the smallest size with nearly the highest throughput (default: knee; energy "
        "with --global-batch-size)",
    )
    for name, text in _NUMBERS.items():
        default = DEFAULTS.get(name)
        shown = "" if default is None else f" (default: {default})"
        kind = type(default or 0)
        metavar = "N" if kind is int else "SHARE"
        add(f"--{name.replace('_', '-')}", type=kind, metavar=metavar, help=text + shown)
    add("--powers-of-two", action="store_true", help="try only powers of two")
    add("--max-s", type=float, metavar="S", help="start no new trial after this time in seconds")
    options.add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Search for a batch size, and print the chosen size and a table of tried sizes; return 0."""
    given = {name: getattr(arguments, name, None) for name in OPTIONS}
    if arguments.quiet:
        given["on_trial"] = lambda _: None
    chosen = cast("TuningOptions", {k: v for k, v in given.items() if v is not None})
    with options.foreign_output(arguments):
        result = tune_batch_size(_step(arguments.step), **chosen)
    if arguments.json:
        options.print_json(result.as_json())
    else:
        print(result)
    return 0


def _objective(word: str) -> str | float:
    if word in OBJECTIVES:
        return word
    try:
        return float(word)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"must be {', '.join(OBJECTIVES)} or a number from 0 to 1, got {word!r}"
        ) from None


def _step(name: str) -> Callable[[int], Any]:
    """Return the training step that ``MODULE:FUNCTION`` names.

    If the function accepts no positional argument, it is called, and its result is the step.

    Raises:
        ValueError: if there is no such function, or if the step is not callable.
    """
    if ":" not in name:
        raise ValueError(f"{name!r} contains no function; write MODULE:FUNCTION")
    step = _resolve(name)
    if callable(step) and not _takes_size(step):
        step = step()
    if not callable(step):
        raise ValueError(
            f"{name!r} must be a function step(size), or return one, got {type(step).__name__}"
        )
    return cast("Callable[[int], Any]", step)


def _resolve(name: str) -> Any:
    """Import and return ``MODULE:FUNCTION``; modules in the current folder are found too."""
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return resolve_name(name)
    except AttributeError as error:
        raise ValueError(f"{name!r} does not exist: {error}") from error
    except ModuleNotFoundError as error:
        if error.name is None or not name.startswith(error.name):
            raise  # an import inside the user's module failed
        raise ValueError(
            f"{name!r}: there is no module {error.name!r} in {folder} or the import path; write "
            "the module as in an import statement, without .py"
        ) from error


def _takes_size(function: Callable[..., Any]) -> bool:
    """Return whether a function accepts a positional argument."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some functions in C have no signature
        return True
    kind = inspect.Parameter
    positional = (kind.POSITIONAL_ONLY, kind.POSITIONAL_OR_KEYWORD, kind.VAR_POSITIONAL)
    return any(parameter.kind in positional for parameter in parameters)
