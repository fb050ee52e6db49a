"""CodeCarbon as a library: what it logs while it works for us stays out of the user's console."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet_codecarbon() -> Iterator[None]:
    """Drop what CodeCarbon logs on this thread until the block ends.

    Its logger writes to stderr on its own (``propagate = False``, level INFO). A tracker that
    the user runs on another thread keeps its log.
    """
    thread = threading.get_ident()

    def is_of_another_thread(_: logging.LogRecord) -> bool:
        return threading.get_ident() != thread

    logger = logging.getLogger("codecarbon")
    logger.addFilter(is_of_another_thread)
    try:
        yield
    finally:
        logger.removeFilter(is_of_another_thread)
