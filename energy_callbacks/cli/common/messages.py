"""Messages of commands on standard error, which ``-q`` hides and to which ``-v`` adds details.

Results are printed to standard output; these messages are everything else.
"""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

PACKAGE: Final = "energy_callbacks"
logger: Final = logging.getLogger(f"{PACKAGE}.cli")
"""Commands log notes as ``info``, details as ``debug``, and what ended the command as ``error``."""


@contextmanager
def on_stderr(*, quiet: bool = False, verbose: bool = False) -> Iterator[None]:
    """Print the messages of commands, and log records of this package, to standard error.

    Args:
        quiet: whether only errors are printed.
        verbose: whether details are printed, too.
    """
    package = logging.getLogger(PACKAGE)
    levels, propagated = (package.level, logger.level), package.propagate
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    package.addHandler(handler)
    package.propagate = False  # frameworks may have added handlers that print the same again
    level = logging.ERROR if quiet else logging.DEBUG if verbose else None
    package.setLevel(level or logging.WARNING)
    logger.setLevel(level or logging.INFO)
    try:
        yield
    finally:
        package.removeHandler(handler)
        package.propagate = propagated
        package.setLevel(levels[0])
        logger.setLevel(levels[1])


def is_quiet() -> bool:
    """Return whether ``-q`` hides all messages but errors."""
    return not logger.isEnabledFor(logging.INFO)
