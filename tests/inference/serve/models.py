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


def _wait_for(name: str) -> None:
    """Wait for the file whose path an environment variable has."""
    while not Path(os.environ[name]).exists():
        time.sleep(0.01)


def loads_slowly() -> Step:
    """Return a model that is loaded only when the file ``LOADS`` exists."""
    _wait_for("LOADS")
    return lambda samples: time.sleep(0.002 * samples)


def ends_slowly() -> Step:
    """Return a model whose process exits only when the file ``ENDS`` exists.

    Processes that use a GPU need a second or two.
    """
    atexit.register(_wait_for, "ENDS")
    return lambda samples: time.sleep(0.002 * samples)


def stops() -> Step:
    """Return a model whose second batch does not end."""
    pauses_s = iter((0.0, 600.0))
    return lambda _: time.sleep(next(pauses_s))


class _Noted:
    note = "runs without CUDA graphs: it depends on results"

    def __call__(self, samples: int) -> None:
        time.sleep(0.002 * samples)


def noted() -> Step:
    """Return a model that says how it runs, as a network without a CUDA graph does."""
    return _Noted()


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
