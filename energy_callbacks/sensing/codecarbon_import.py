"""Imports CodeCarbon without waiting for NVML, and suppresses its log messages on one thread."""

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from energy_callbacks.core.forks import ProcessLock
from energy_callbacks.sensing import time_limit

# Time limit for ``nvmlInit`` during the import, s. Without a driver, it fails within 1 ms; on an
# H100 it takes 13 ms.
_PATIENCE_S: Final = 0.05
# CodeCarbon has circular imports: two threads that import it at the same time can deadlock.
_one_at_a_time = ProcessLock()


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
    """Import CodeCarbon, if installed, without waiting for NVML.

    The import calls ``nvmlInit`` to find out whether there is a driver, and CodeCarbon calls it
    again before it uses NVML. If the first call takes long, the import assumes that it succeeds.
    """
    import pynvml

    start = pynvml.nvmlInit

    def bounded_start() -> None:
        with suppress(TimeoutError):
            time_limit.within(_PATIENCE_S, start, "NVML of CodeCarbon")

    pynvml.nvmlInit = bounded_start
    try:
        with suppress(ImportError):  # the code that needs CodeCarbon reports that it is missing
            import codecarbon  # noqa: F401
    finally:
        pynvml.nvmlInit = start
