"""The state machine of a meter: which attempt is running, and how attempts end."""

import atexit
import logging
from collections.abc import Callable
from typing import Final, Literal

from energy_callbacks.accounting.attempt import ActiveAttempt
from energy_callbacks.accounting.profilers import Profilers
from energy_callbacks.core import forks
from energy_callbacks.core.active_call import keep_interrupt
from energy_callbacks.core.guard import harmless

logger = logging.getLogger("energy_callbacks")

State = Literal["new", "running", "ended", "failed"]

# Time for the journal's thread to finish the report of an attempt that was not stopped.
_REPORT_S: Final = 30.0


class Lifecycle:
    """The attempts of one meter: at most one is running at a time.

    ::

        new, ended, failed ── begin ──▶ running
        running ── stop ─────────────▶ ended     the user or the adapter stops it
        running ── end_if_left ──────▶ ended     the call that trains has ended, seen by a caller
        running ── end_left ─────────▶ ended     the same, seen by the journal's thread
        running ── exit ─────────────▶ ended     the interpreter exits
        any state ── abandon ────────▶ failed    an error in this package

    In state ``failed`` the figures of the newest attempt are not shown. ``stop``, ``end_if_left``,
    ``end_left`` and ``exit`` do nothing unless an attempt is running; ``begin`` while one is
    running is an error. In a forked child no attempt of the parent is running.

    Attributes:
        state: one of the states above.
        attempt: the running attempt; ``None`` if none is running.
        newest: the running attempt or the last one; ``None`` before the first.
        generation: ``forks.generation`` when the newest attempt began.
    """

    def __init__(self) -> None:
        self.state: State = "new"
        self.attempt: ActiveAttempt | None = None
        self.newest: ActiveAttempt | None = None
        self.generation: int | None = None
        self._profilers = Profilers(())
        self._on_left: Callable[[ActiveAttempt], None] | None = None

    @property
    def running(self) -> ActiveAttempt | None:
        """The attempt that is running in this process, and not in its parent."""
        return self.attempt if self.generation == forks.generation else None

    @property
    def own(self) -> ActiveAttempt | None:
        """The newest attempt of this process.

        ``None`` in a forked child: locks that another thread held at the fork stay locked there.
        """
        return self.newest if self.generation == forks.generation else None

    def begin(
        self, attempt: ActiveAttempt, profilers: Profilers, on_left: Callable[[ActiveAttempt], None]
    ) -> None:
        """Begin an attempt.

        Args:
            attempt: the new attempt.
            profilers: stopped before it ends.
            on_left: called after the attempt has ended without ``stop``.

        Raises:
            RuntimeError: while an attempt is running.
        """
        if self.running is not None:
            raise RuntimeError("an attempt is running already; stop it before the next one begins")
        self.attempt = self.newest = attempt
        self.generation = forks.generation
        self.state = "running"
        self._profilers, self._on_left = profilers, on_left
        atexit.register(self.exit)

    def stop(self, error: BaseException | None = None) -> None:
        """End the running attempt.

        Args:
            error: the exception that ended the training; ``None`` for none.
        """
        if (attempt := self.running) is not None:
            self._profilers.stop()
            attempt.end(error)
            self._forget(attempt)
            atexit.unregister(self.exit)

    def end_if_left(self) -> None:
        """End the running attempt if the call that trains has ended without ``stop``."""
        attempt = self.running
        if attempt is not None and attempt.call is not None and not attempt.call.is_under_way():
            self.end_left()

    @harmless
    def end_left(self, *, on_own_thread: bool = False) -> None:
        """End an attempt that was not stopped.

        Args:
            on_own_thread: whether the caller is the journal's thread.
        """
        attempt = self.running
        if attempt is None:
            return
        self._profilers.stop()
        if not attempt.end_left(on_own_thread=on_own_thread):
            return
        self._forget(attempt)
        if self._on_left is not None:
            self._on_left(attempt)
        if self.attempt is None:
            atexit.unregister(self.exit)  # not earlier: ``exit`` waits for the report

    def exit(self) -> None:
        """End the running attempt when the interpreter exits, and wait for its report."""
        self.end_left()
        if (newest := self.own) is not None:
            newest.wait_for_journal(_REPORT_S)
        keep_interrupt()

    def abandon(self, message: str) -> None:
        """Stop measuring, and log why with the exception that is being handled."""
        attempt, self.attempt = self.attempt, None
        self.state = "failed"
        atexit.unregister(self.exit)
        logger.warning("%s", message, exc_info=True)  # noqa: LOG014 - called while handling
        self._profilers.stop()
        if attempt is not None:
            attempt.abandon()

    def _forget(self, attempt: ActiveAttempt) -> None:
        if self.attempt is attempt:
            self.attempt = None
            self.state = "ended"
