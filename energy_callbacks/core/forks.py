"""Counts forks, so that an object can detect that it was copied into a forked child process.

Comparing ``os.getpid()`` would also work, but that system call takes 7 us with cold caches, and
the check runs at every step.
"""

import os

generation = 0
"""Number of forks between the process that first imported this module and this process."""


def _next_generation() -> None:
    global generation  # noqa: PLW0603 - one counter per process
    generation += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_next_generation)
