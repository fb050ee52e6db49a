"""The attempts of this process whose journals are not closed or whose reports are not made yet.

A training does not wait for the end of its attempt. Whoever needs a complete journal waits here:
the interpreter at its exit, an attempt that continues a run, and ``report.build``.
"""

import atexit
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from energy_callbacks.core import forks
from energy_callbacks.core.active_call import keep_interrupt
from energy_callbacks.core.guard import logger

if TYPE_CHECKING:
    from energy_callbacks.accounting.attempt import ActiveAttempt

REPORT_S: Final = 30.0
"""Maximum wait for the report of an attempt, s."""

# For each attempt: the function that ends it at exit, and ``forks.generation`` at its start. Single
# operations on a dictionary need no lock, so a signal handler may interrupt any of them.
_open: Final[dict["ActiveAttempt", tuple[Callable[[], object], int]]] = {}


def add(attempt: "ActiveAttempt", at_exit: Callable[[], object]) -> None:
    """Add an attempt that begins.

    Args:
        attempt: the attempt.
        at_exit: called when the interpreter exits; ends the attempt if it is running, and waits for
            its journal and its report.
    """
    _open[attempt] = (at_exit, forks.generation)
    exit_first()


def exit_first() -> None:
    """Make the exit of the interpreter end attempts before it ends libraries imported until now.

    The handler of ``atexit`` that was registered last runs first.
    """
    atexit.unregister(close_all)
    atexit.register(close_all)


def is_open(attempt: "ActiveAttempt") -> bool:
    """Return whether the journal or the report of an attempt is not complete."""
    return attempt in _open


def remove(attempt: "ActiveAttempt") -> None:
    """Remove an attempt that has ended completely; do nothing if it was removed before."""
    _open.pop(attempt, None)


def wait_for_journals(path: Path) -> None:
    """Wait for the journals of attempts that are ending; running attempts are not waited for.

    Args:
        path: run folder of the attempts, a file in it, or a folder that contains it.
    """
    for attempt in _ending(path):
        attempt.thread.wait_until_over()


def wait_for_reports(path: Path) -> None:
    """Wait for the journals and the reports of attempts that are ending.

    Args:
        path: as for ``wait_for_journals``.
    """
    for attempt in _ending(path):
        attempt.thread.wait_for_journal(REPORT_S)


def _ending(path: Path) -> Iterator["ActiveAttempt"]:
    place = path.resolve()
    for attempt in _ours():
        if attempt.thread.is_ending:
            folder = attempt.run_folder.resolve()
            if folder.is_relative_to(place) or place.is_relative_to(folder):
                yield attempt


def _ours() -> dict["ActiveAttempt", Callable[[], object]]:
    """Return the attempts that this process has started, and what ends each of them at exit."""
    # A copy, because the journals' threads remove attempts at any time.
    known = _open.copy()
    return {one: at_exit for one, (at_exit, made) in known.items() if made == forks.generation}


def close_all() -> None:
    """End all attempts of this process; the interpreter calls this when it exits.

    Ctrl-C ends the wait for journals and reports.
    """
    ours = _ours()
    try:
        for at_exit in ours.values():
            at_exit()
    except KeyboardInterrupt:
        for folder in {attempt.run_folder for attempt in ours if attempt in _open}:
            logger.warning(
                "no energy report in %s: interrupted by Ctrl-C; make it with: "
                "energy-callbacks report %s",
                folder,
                folder,
            )
    keep_interrupt()
