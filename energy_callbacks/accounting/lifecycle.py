"""State machine of a meter: begins attempts, ends them, and knows which one is running."""

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

# Maximum wait at exit, in seconds, until the journal's thread has finished the report of an
# attempt that ended without ``stop``.
_REPORT_S: Final = 30.0


class Lifecycle:
    """Begins and ends the attempts of one meter; at most one is running at a time.

    ::

        new, ended, failed ── begin ──▶ running
        running ── stop ─────────────▶ ended     the user or the adapter stops it
        running ── end_if_left ──────▶ ended     the meter finds that the user's ``fit`` has ended
        running ── end_left ─────────▶ ended     the journal's thread finds that ``fit`` has ended
        running ── exit ─────────────▶ ended     the interpreter exits
        any state ── abandon ────────▶ failed    an error in this package

    In state ``failed``, ``scalars`` and ``totals`` of the meter are empty. If no attempt is
    running, ``stop``, ``end_if_left`` and ``end_left`` do nothing, and ``exit`` only waits for a
    report. ``begin`` raises an error if an attempt is running. In a forked child, an attempt of the
    parent does not count as running.

    Attributes:
        state: one of the states above.
        attempt: the running attempt (in a forked child, it may be the parent's); ``None`` if no
            attempt is running.
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
        """The running attempt of this process; ``None`` if there is none, or only the parent's."""
        return self.attempt if self.generation == forks.generation else None

    @property
    def is_inherited(self) -> bool:
        """Whether this process is a forked child and the newest attempt is that of its parent."""
        return self.generation not in (None, forks.generation)

    @property
    def own(self) -> ActiveAttempt | None:
        """The newest attempt of this process; ``None`` if there is none, or only the parent's.

        A forked child must not use its parent's attempt: locks that another thread held during the
        fork stay locked in the child.
        """
        return self.newest if self.generation == forks.generation else None

    def begin(
        self, attempt: ActiveAttempt, profilers: Profilers, on_left: Callable[[ActiveAttempt], None]
    ) -> None:
        """Begin an attempt.

        Args:
            attempt: the new attempt.
            profilers: profilers to stop before the attempt ends.
            on_left: called after the attempt has ended without ``stop``.

        Raises:
            RuntimeError: if an attempt is running.
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
            error: the exception that ended the training; ``None`` if it ended without one.
        """
        if (attempt := self.running) is not None:
            self._profilers.stop()
            attempt.end(error)
            self._forget(attempt)
            atexit.unregister(self.exit)

    def end_if_left(self) -> None:
        """End the running attempt if the user's ``fit`` or similar call has ended."""
        attempt = self.running
        if attempt is not None and attempt.call is not None and not attempt.call.is_under_way():
            self.end_left()

    @harmless
    def end_left(self, *, on_own_thread: bool = False) -> None:
        """End an attempt whose training has ended without ``stop``.

        Args:
            on_own_thread: whether this is called on the journal's thread.
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
            # Not earlier: if the interpreter exits while ``_on_left`` writes the report, ``exit``
            # waits until the report is written.
            atexit.unregister(self.exit)

    def exit(self) -> None:
        """End the running attempt when the interpreter exits, and wait for its report."""
        self.end_left()
        if (newest := self.own) is not None:
            newest.wait_for_journal(_REPORT_S)
        keep_interrupt()

    def abandon(self, message: str) -> None:
        """Stop measuring after an error, and log a message with the exception being handled."""
        attempt, self.attempt = self.running, None
        self.state = "failed"
        atexit.unregister(self.exit)
        logger.warning("%s", message, exc_info=True)  # noqa: LOG014 - called in exception handlers
        if attempt is not None:
            self._profilers.stop()
            attempt.abandon()

    def _forget(self, attempt: ActiveAttempt) -> None:
        if self.attempt is attempt:
            self.attempt = None
            self.state = "ended"
