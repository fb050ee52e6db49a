"""Imports CodeCarbon with a time limit for NVML, and suppresses its log messages on one thread."""

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from energy_callbacks.sensing import time_limit

# CodeCarbon has circular imports: two threads that import it at the same time can deadlock.
_one_at_a_time = threading.RLock()


@contextmanager
def quiet_codecarbon() -> Iterator[None]:
    """Suppress CodeCarbon's log messages from this thread inside the block.

    CodeCarbon is imported before the block if it is installed and not imported yet. A CodeCarbon
    tracker that the user runs on another thread still logs its messages. Only one thread at a time
    can be inside the block; other threads wait.
    """
    thread = threading.get_ident()

    def is_of_another_thread(_: logging.LogRecord) -> bool:
        return threading.get_ident() != thread

    logger = logging.getLogger("codecarbon")
    with _one_at_a_time:
        logger.addFilter(is_of_another_thread)
        try:
            if "codecarbon" not in sys.modules:
                _import()
            yield
        finally:
            logger.removeFilter(is_of_another_thread)


def _import() -> None:
    """Import CodeCarbon, if installed. Its import calls ``nvmlInit``, which gets a time limit."""
    import pynvml

    start = pynvml.nvmlInit

    def bounded_start() -> None:
        try:
            time_limit.within(time_limit.PATIENCE_S, start, "NVML")
        except TimeoutError as error:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT) from error

    pynvml.nvmlInit = bounded_start
    try:
        with suppress(ImportError):  # the code that needs CodeCarbon reports that it is missing
            import codecarbon  # noqa: F401
    finally:
        pynvml.nvmlInit = start
