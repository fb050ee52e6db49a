"""Options of several commands and their values, and what ``--json`` means for standard output."""

import argparse
import io
import json
import os
import sys
from collections.abc import Iterator
from contextlib import (
    AbstractContextManager,
    ExitStack,
    contextmanager,
    redirect_stderr,
    redirect_stdout,
)
from typing import Any, Final

from energy_callbacks.core.settings import texts

PUE_HELP: Final = "power usage effectiveness of the building: 1 or more (default: that of the run)"
# Longest accepted time, s: a year. ``time.sleep`` fails for much longer times.
_LONGEST_S: Final = 365.0 * 86400.0
_JSON: Final = "print the result as JSON on standard output, and nothing else there"


def add_json(parser: argparse.ArgumentParser, **others: str) -> argparse._MutuallyExclusiveGroup:
    """Declare ``--json``, and other output formats that exclude it.

    Args:
        parser: the parser of the command.
        others: help texts of the other formats, by the name of the option.

    Returns:
        The group of options, to which others can be added.
    """
    formats = parser.add_mutually_exclusive_group()
    formats.add_argument("--json", action="store_true", help=_JSON)
    for name, text in others.items():
        formats.add_argument(f"--{name.replace('_', '-')}", action="store_true", help=text)
    return formats


def add_location(parser: argparse._ActionsContainer, *, region: bool = True) -> None:
    """Declare ``--country`` and, unless ``region`` is ``False``, ``--region``."""
    parser.add_argument(
        "--country",
        help="country of the machine, for emissions: ISO 3166 code or English name, such as DEU",
    )
    if region:
        parser.add_argument("--region", help="state of the USA or province of Canada")


def add_price(parser: argparse._ActionsContainer) -> None:
    """Declare ``--price-per-kwh`` and ``--currency``."""
    parser.add_argument("--price-per-kwh", type=float, metavar="P", help="price of a kilowatt-hour")
    parser.add_argument("--currency", metavar="CODE", help="currency of the price, such as EUR")


def add_verbosity(parser: argparse.ArgumentParser) -> None:
    """Declare ``-q`` and ``-v``."""
    levels = parser.add_mutually_exclusive_group()
    levels.add_argument(
        "-q",
        "--quiet",
        action="store_true",
        help="print results and errors only: no notes, warnings or progress",
    )
    levels.add_argument(
        "-v", "--verbose", action="store_true", help="also print details and tracebacks of errors"
    )


def device_list(word: str) -> str | list[int | str]:
    """Return the value of ``--devices``: ``all``, ``auto``, or a list of indices and UUIDs.

    Raises:
        ArgumentTypeError: if an entry of the list is empty.
    """
    devices = texts.devices(word)
    if isinstance(devices, str) and devices not in ("all", "auto"):
        raise argparse.ArgumentTypeError(f"must be a list such as 0,1, got {word!r}")
    return devices


def seconds(word: str) -> float:
    """Return a time in seconds.

    Raises:
        ArgumentTypeError: if it is not positive.
    """
    try:
        value = float(word)
    except ValueError:
        value = 0.0
    if not 0.0 < value <= _LONGEST_S:
        raise argparse.ArgumentTypeError(f"must be a positive number of seconds, got {word!r}")
    return value


def seconds_or_zero(word: str) -> float:
    """Return a time in seconds, which may be 0.

    Raises:
        ArgumentTypeError: if it is not 0 or positive.
    """
    try:
        return 0.0 if float(word) == 0.0 else seconds(word)
    except (ValueError, argparse.ArgumentTypeError):
        raise argparse.ArgumentTypeError(
            f"must be 0 or a positive number of seconds, got {word!r}"
        ) from None


def share(word: str) -> float:
    """Return the share that is written in a word, such as ``5%`` or ``0.05``.

    Raises:
        ArgumentTypeError: if the word is not a number, or if the share is negative, or 10 (1000 %)
            or more.

    >>> share("5%"), share("5 %"), share("0.05")
    (0.05, 0.05, 0.05)
    """
    number = word.strip()
    try:
        value = float(number.removesuffix("%")) / (100.0 if number.endswith("%") else 1.0)
    except ValueError:
        value = -1.0
    if not 0.0 <= value < 10.0:
        raise argparse.ArgumentTypeError(f"must be a share such as 5% or 0.05, got {word!r}")
    return value


def discard_output() -> None:
    """Discard standard output from now on, because its reader, such as ``head``, has ended.

    Otherwise, the flush at the exit of the interpreter would fail.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def discard_full_output() -> bool:
    """Discard standard output from now on if it cannot be written; return whether this is so.

    An empty line is printed to find out: after an error, there may be nothing left to write.
    """
    try:
        print(flush=True)
    except OSError:
        discard_output()
        return True
    return False


@contextmanager
def until_reader_ends() -> Iterator[None]:
    """Leave the block without an error if it prints and the reader of standard output has ended."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output()
    except SystemExit as error:
        if not isinstance(error.__context__, BrokenPipeError):  # rich exits with 1
            raise


def print_json(value: Any) -> None:
    """Print a value of JSON types."""
    print(json.dumps(value, indent=2, ensure_ascii=not prints_all_characters()))


def prints_all_characters() -> bool:
    """Return whether the encoding of standard output has all characters."""
    return (sys.stdout.encoding or "utf-8").lower().startswith("utf")


def replace_unprintable() -> None:
    """Print ``?`` for each character that the encoding of standard output does not have."""
    if isinstance(sys.stdout, io.TextIOWrapper) and not prints_all_characters():
        sys.stdout.reconfigure(errors="replace")


def foreign_output(arguments: argparse.Namespace) -> AbstractContextManager[Any]:
    """Return a context for code that may print anything, such as a training.

    With ``--json``, what it prints to standard output goes to standard error. With ``-q``, what it
    prints is discarded.
    """
    contexts = ExitStack()
    if arguments.json:
        contexts.enter_context(redirect_stdout(sys.stderr))
    if arguments.quiet:
        nowhere = io.StringIO()  # log handlers of frameworks keep it: it must not be closed
        contexts.enter_context(redirect_stdout(nowhere))
        contexts.enter_context(redirect_stderr(nowhere))
    return contexts
