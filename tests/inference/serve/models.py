"""Models of tests of serving, which need no framework."""

import atexit
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

Step = Callable[[int], None]


def dies_once() -> Step:
    """Return a model whose first process is killed in its fifth batch.

    The environment variable ``DIES_ONCE`` is the path of a file that the process creates.
    """
    path, count = Path(os.environ["DIES_ONCE"]), 0

    def step(samples: int) -> None:
        nonlocal count
        count += 1
        time.sleep(0.002 * samples)
        if count == 5 and not path.exists():
            path.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    return step


def ends_slowly() -> Step:
    """Return a model whose process needs a second to exit, as processes that use a GPU do."""
    atexit.register(time.sleep, 1.0)
    return lambda samples: time.sleep(0.002 * samples)


def dies_often() -> Step:
    """Return a model whose processes are all killed in their third batch."""
    count = 0

    def step(samples: int) -> None:
        nonlocal count
        count += 1
        time.sleep(0.002 * samples)
        if count == 3:
            os.kill(os.getpid(), signal.SIGKILL)

    return step
