"""Runs functions in forked child processes."""

import faulthandler
import os
import signal
from collections.abc import Callable


def in_a_child(work: Callable[[], object], limit_s: float = 60.0) -> int:
    """Run ``work`` in a forked child; 0 if it returned true, 9 if it raised, else a signal."""
    pid = os.fork()
    if pid == 0:
        faulthandler.disable()
        signal.setitimer(signal.ITIMER_REAL, limit_s)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        try:
            os._exit(0 if work() else 1)
        except BaseException:  # noqa: BLE001 - nothing of the child may reach pytest
            os._exit(9)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
