"""``energy-callbacks tune``: the batch size of a training step, from a function of the user's."""

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

_NUMBERS: Final = {
    "min_size": "none smaller",
    "max_size": "none larger",
    "multiple_of": "only multiples of it",
    "start_size": "where to begin, such as the size in use",
    "memory_margin": "share of the device's memory that is to stay free",
    "max_trials": "at most so many",
    "global_batch_size": "samples of an optimizer step: sizes divide it, and the step is "
    "step(size, accumulation)",
}

HELP = "find a batch size: run a training step at some sizes and measure speed, energy and memory"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "step",
        metavar="MODULE:FUNCTION",
        help="step(size), one training step with so many samples; or a function without "
        "arguments that returns it",
    )
    parser.add_argument(
        "--objective",
        type=_objective,
        metavar="WHAT",
        help=f"{', '.join(OBJECTIVES)}, or the weight of energy against time from 0 to 1 "
        "(default: knee; energy with --global-batch-size)",
    )
    for name, of in _NUMBERS.items():
        usual = DEFAULTS.get(name)
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            type=type(usual or 0),
            help=of + ("" if usual is None else f" (default: {usual})"),
        )
    parser.add_argument("--powers-of-two", action="store_true", help="only powers of two")
    parser.add_argument("--max-s", type=float, help="no new trial after so many seconds")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the result there")


def run(arguments: argparse.Namespace) -> int:
    """Search, and print the table."""
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
    """The function named by ``MODULE:FUNCTION``, also in the current folder."""
    if ":" not in name:
        raise ValueError(f"{name!r} names no function; write it as MODULE:FUNCTION")
    found = _found(name)
    if callable(found) and not _wants_size(found):
        found = found()
    if not callable(found):
        raise ValueError(
            f"{name!r} is no function step(size), nor does it return one: {type(found).__name__}"
        )
    step: Callable[[int], Any] = found
    return step


def _found(name: str) -> Any:
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return resolve_name(name)
    except AttributeError as error:
        raise ValueError(f"{name!r} names nothing: {error}") from error
    except ModuleNotFoundError as error:
        if error.name is None or not name.startswith(error.name):
            raise  # something that the user's module imports
        raise ValueError(
            f"{name!r}: no module {error.name!r} is seen from {folder}; write it as an import "
            "does, without .py"
        ) from error


def _wants_size(function: Callable[..., Any]) -> bool:
    """Whether it takes an argument by its place."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # written in C
        return True
    by_place = (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.VAR_POSITIONAL,
    )
    return any(parameter.kind in by_place for parameter in parameters)
