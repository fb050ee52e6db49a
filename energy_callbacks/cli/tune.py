"""``energy-callbacks tune``: searches for the best batch size of a Python training step."""

import argparse
import inspect
import json
import sys
from collections.abc import Callable
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Final, cast

from energy_callbacks.tuning import TuningOptions, tune_batch_size
from energy_callbacks.tuning.options import DEFAULTS, OPTIONS
from energy_callbacks.tuning.search.search import OBJECTIVES

# Help texts of options that take a number.
_NUMBERS: Final = {
    "min_size": "none smaller",
    "max_size": "none larger",
    "multiple_of": "only multiples of it (default: 8; 1 for largest, --powers-of-two and "
    "--global-batch-size)",
    "start_size": "where to begin, such as the size in use",
    "memory_margin": "share of the device's memory that is to stay free",
    "max_trials": "at most so many, with repeats (default: 12; 20 for largest)",
    "global_batch_size": "samples of an optimizer step: sizes divide it, and the step is "
    "step(size, accumulation)",
}

HELP = "find a batch size: run a training step at some sizes and measure speed, energy and memory"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add = parser.add_argument
    add(
        "step",
        metavar="MODULE:FUNCTION",
        help="step(size), one training step with so many samples; or a function without "
        "arguments that returns it",
    )
    add(
        "--objective",
        type=_objective,
        metavar="WHAT",
        help=f"{', '.join(OBJECTIVES)}, or the weight of energy against time from 0 to 1 "
        "(default: knee; energy with --global-batch-size)",
    )
    for name, text in _NUMBERS.items():
        default = DEFAULTS.get(name)
        shown = "" if default is None else f" (default: {default})"
        add(f"--{name.replace('_', '-')}", type=type(default or 0), help=text + shown)
    add("--powers-of-two", action="store_true", help="only powers of two")
    add("--max-s", type=float, help="no new trial after so many seconds")
    add("--json", type=Path, metavar="FILE", help="also write the result there")


def run(arguments: argparse.Namespace) -> int:
    """Search for a batch size, and print the chosen size and a table of tried sizes; return 0.

    With ``--json``, also write the result to a file and print the path of the file.
    """
    given = {name: getattr(arguments, name, None) for name in OPTIONS}
    options = cast("TuningOptions", {k: v for k, v in given.items() if v is not None})
    result = tune_batch_size(_step(arguments.step), **options)
    print(result)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(result.as_json(), indent=2) + "\n")
        print(arguments.json)
    return 0


def _objective(word: str) -> str | float:
    if word in OBJECTIVES:
        return word
    try:
        return float(word)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{word!r} is none of {', '.join(OBJECTIVES)} and no number"
        ) from None


def _step(name: str) -> Callable[[int], Any]:
    """Return the training step that ``MODULE:FUNCTION`` names.

    If the function accepts no positional argument, it is called, and its result is the step.

    Raises:
        ValueError: if there is no such function, or if the step is not callable.
    """
    if ":" not in name:
        raise ValueError(f"{name!r} names no function; write it as MODULE:FUNCTION")
    step = _resolve(name)
    if callable(step) and not _takes_size(step):
        step = step()
    if not callable(step):
        raise ValueError(
            f"{name!r} is no function step(size), nor does it return one: {type(step).__name__}"
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
        raise ValueError(f"{name!r} names nothing: {error}") from error
    except ModuleNotFoundError as error:
        if error.name is None or not name.startswith(error.name):
            raise  # an import inside the user's module failed
        raise ValueError(
            f"{name!r}: no module {error.name!r} is seen from {folder}; write it as an import "
            "does, without .py"
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
