"""Counts forks, so that an object can detect that it was copied into a forked child process.

An object compares ``generation`` with the value of ``generation`` at the object's creation.
Comparing process ids would also work, but the system call of ``os.getpid()`` takes 7 us with cold
caches, and the comparison runs at every step of the training.
"""

import os

generation = 0
"""Number of forks between the process that first imported this module and this process."""


def _next_generation() -> None:
    global generation  # noqa: PLW0603 - one counter per process
    generation += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_next_generation)
