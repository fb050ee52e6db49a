"""Models of tests, which take a known time and need no framework."""

import os
import signal
import time
from collections.abc import Callable

Step = Callable[[int], None]


def steady() -> Step:
    """Return a model of 2 ms for each sample."""
    return lambda batch: time.sleep(0.002 * batch)


def hungry() -> Step:
    """Return a model that runs out of memory with more than four samples."""

    def step(batch: int) -> None:
        if batch > 4:
            raise MemoryError("too many samples")
        time.sleep(0.002)

    return step


def killed() -> Step:
    """Return a model whose process is killed, as the kernel does if the host has no memory left."""
    return lambda _: os.kill(os.getpid(), signal.SIGKILL)


def frozen() -> Step:
    """Return a model whose first batch does not end."""
    return lambda _: time.sleep(60.0)


def slow() -> Step:
    """Return a model that takes half a second to load, and prints nothing."""
    time.sleep(0.5)
    return steady()


def garrulous() -> Step:
    """Return a model whose error has several lines."""

    def step(_: int) -> None:
        raise ValueError("one\ntwo")

    return step


def printing() -> Step:
    """Return a model that prints to standard output, as libraries do."""

    def step(_: int) -> None:
        print("a message of a library", flush=True)
        time.sleep(0.002)

    return step
