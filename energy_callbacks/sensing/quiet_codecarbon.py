"""CodeCarbon as a library: quiet, and on one of our threads at a time."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

# Its modules import each other in circles: two threads that import it at once deadlock.
_one_at_a_time = threading.RLock()


@contextmanager
def quiet_codecarbon() -> Iterator[None]:
    """Drop what CodeCarbon logs on this thread until the block ends.

    Its logger writes to stderr on its own (``propagate = False``, level INFO). A tracker that
    the user runs on another thread keeps its log. Only one thread of ours is inside at a time.
    """
    thread = threading.get_ident()

    def is_of_another_thread(_: logging.LogRecord) -> bool:
        return threading.get_ident() != thread

    logger = logging.getLogger("codecarbon")
    with _one_at_a_time:
        logger.addFilter(is_of_another_thread)
        try:
            yield
        finally:
            logger.removeFilter(is_of_another_thread)
