"""State machine of a meter: begins attempts, ends them, and knows which one is running."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal

from energy_callbacks.accounting import open_attempts
from energy_callbacks.accounting.profilers import Profilers
from energy_callbacks.core import forks
from energy_callbacks.core.active_call import ActiveCall
from energy_callbacks.core.guard import harmless, logger

if TYPE_CHECKING:
    from energy_callbacks.accounting.attempt import ActiveAttempt

# Maximum wait of ``stop`` until the journal is on the disk and the threads have ended, s.
_DISK_S: Final = 1.5

State = Literal["new", "running", "ended", "failed"]


class Lifecycle:
    """Begins and ends the attempts of one meter; at most one is running at a time.

    ::

        new, ended, failed ── begin ──▶ running
        running ── ask_to_end, stop ─▶ ended     the user or the adapter ends it
        running ── end_if_left ──────▶ ended     the meter, or the journal's thread, finds that the
                                                 user's ``fit``, in which it began, has ended
        running ── exit ─────────────▶ ended     the interpreter exits
        any state ── _abandon ───────▶ failed    an error in this package

    An attempt that the user has begun before ``fit`` goes on after it; see ``ends_with_call``.

    An attempt counts as ended from the moment at which it is asked to end. Its journal is closed
    soon afterwards by the journal's thread; ``open_attempts`` lists it until then. No method takes
    a lock, so a signal handler may interrupt any of them and call another one.

    In state ``failed``, ``scalars`` and ``totals`` of the meter are empty. If no attempt is
    running, ``ask_to_end``, ``end_if_left`` and ``end_left`` do nothing, and ``stop`` only waits
    for the journal of the newest attempt. ``begin`` raises an error if an attempt is running. In a
    forked child, an attempt of the parent does not count as running.

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
    def running(self) -> "ActiveAttempt | None":
        """The running attempt of this process; ``None`` if there is none, or only the parent's."""
        return self.attempt if self.generation == forks.generation else None

    @property
    def is_inherited(self) -> bool:
        """Whether this process is a forked child and the newest attempt is that of its parent."""
        return self.generation not in (None, forks.generation)

    @property
    def own(self) -> "ActiveAttempt | None":
        """The newest attempt of this process; ``None`` if there is none, or only the parent's.

        A forked child must not use its parent's attempt: locks that another thread held during the
        fork stay locked in the child.
        """
        return self.newest if self.generation == forks.generation else None

    def begin(
        self,
        attempt: "ActiveAttempt",
        profilers: Profilers,
        on_left: Callable[["ActiveAttempt"], None],
    ) -> None:
        """Begin an attempt.

        Args:
            attempt: the new attempt.
            profilers: profilers to stop before the attempt ends.
            on_left: called on the journal's thread after the journal of an attempt that ended
                without ``stop`` is closed.

        Raises:
            RuntimeError: if an attempt is running.
        """
        if self.running is not None:
            raise RuntimeError("the meter is already measuring; call stop() before the next start")
        self.attempt = self.newest = attempt
        self.generation = forks.generation
        self.state = "running"
        self._profilers, self._on_left = profilers, on_left
        open_attempts.add(attempt, lambda: self.exit(attempt))

    @harmless
    def begin_call(self, call: ActiveCall | None) -> None:
        """Begin a framework's call in an attempt of the user; do nothing if none is running.

        Args:
            call: see ``ActiveAttempt.begin_call``.
        """
        if attempt := self.running:
            attempt.begin_call(call)

    def running_after_call(self) -> "ActiveAttempt | None":
        """Return the running attempt, without the phases of a call that an exception has ended."""
        attempt = self.running
        if attempt is not None and not attempt.ends_with_call:
            self.end_if_left()
        return attempt

    @harmless
    def end_call(self, timeout_s: float) -> None:
        """End the phases of a framework's call in an attempt of the user.

        Args:
            timeout_s: maximum wait for the figures up to now, s.
        """
        attempt = self.running
        if attempt is not None and attempt.end_call():
            self._profilers.mark(f"phase:{attempt.recorder.phases.name}", attempt.now_s())
            attempt.catch_up(timeout_s)

    def ask_to_end(self, error: BaseException | None = None) -> "ActiveAttempt | None":
        """End the running attempt without waiting; ``close`` must be called soon afterwards.

        Args:
            error: the exception that ended the training; ``None`` if it ended without one.

        Returns:
            The attempt; ``None`` if none was running.
        """
        attempt = self.running
        if attempt is not None:
            self._profilers.stop()
            attempt.thread.ask_to_end(error)
            self._forget(attempt)
        return attempt

    def close(self, attempt: "ActiveAttempt", then: Callable[[], None] | None = None) -> None:
        """Let the journal's thread close the journal of an attempt, and do not wait for that.

        Args:
            attempt: an attempt that was asked to end.
            then: called on the journal's thread afterwards; a failure is logged.
        """

        def finish() -> None:
            try:
                if then is not None:
                    then()
            except Exception:
                logger.warning("no energy report in %s", attempt.run_folder, exc_info=True)
            finally:
                open_attempts.remove(attempt)

        attempt.thread.let_go(finish)

    def stop(self, error: BaseException | None = None) -> None:
        """End the running attempt, and wait a few seconds until its journal is closed.

        If no attempt is running, wait for the newest one: a signal handler may call this method
        while the attempt ends.

        Args:
            error: the exception that ended the training; ``None`` if it ended without one.
        """
        if (attempt := self.ask_to_end(error)) is not None:
            self.close(attempt)
        newest = self.own
        if newest is None or not newest.thread.is_ending:
            return
        if not newest.thread.wait_until_over():
            folder = newest.run_folder
            logger.warning(
                "the energy journal in %s cannot be written; energy is no longer measured", folder
            )
        elif attempt is not None:
            attempt.thread.wait_for_journal(_DISK_S)

    @harmless
    def end_if_left(self, *, on_own_thread: bool = False) -> None:
        """End the running attempt if the user's ``fit`` or similar call has ended.

        If the attempt does not end with this call, only the phases of the call end.

        Args:
            on_own_thread: see ``end_left``.
        """
        attempt = self.running
        if attempt is None or attempt.call is None or attempt.call.is_under_way():
            return
        if attempt.ends_with_call:
            self.end_left(on_own_thread=on_own_thread)
        else:
            attempt.end_call_if_left()

    @harmless
    def end_left(self, *, on_own_thread: bool = False) -> None:
        """End an attempt whose training has ended without ``stop``.

        Args:
            on_own_thread: whether this is called on the journal's thread, which must not wait for
                itself.
        """
        attempt = self.running
        if attempt is None:
            return
        self._profilers.stop()
        attempt.thread.ask_to_end_left()
        self._forget(attempt)
        self._close_left(attempt)
        if not on_own_thread:
            attempt.thread.wait_until_over()

    def _close_left(self, attempt: "ActiveAttempt") -> None:
        on_left = self._on_left
        self.close(attempt, None if on_left is None else lambda: on_left(attempt))

    def exit(self, attempt: "ActiveAttempt") -> None:
        """When the interpreter exits, end an attempt, and wait for its journal and report."""
        if self.attempt is attempt:
            self.end_left()
        elif not attempt.thread.is_let_go:  # an exception came between ``ask_to_end`` and ``close``
            self._close_left(attempt)
        if attempt.thread.wait_until_over():
            attempt.thread.wait_for_journal(open_attempts.REPORT_S)
        if attempt.on_report and open_attempts.is_open(attempt):
            logger.warning(
                "the energy report of %s may be missing in the run of your experiment tracker: the "
                "process exits before it is there; call wait_for_report() with a longer timeout_s",
                attempt.run_folder,
            )

    def _abandon(self, message: str) -> None:
        """Stop measuring after an error, and log a message with the exception being handled."""
        attempt, self.attempt = self.running, None
        self.state = "failed"
        logger.warning("%s", message, exc_info=True)  # noqa: LOG014 - called in exception handlers
        if attempt is not None:
            open_attempts.remove(attempt)
            self._profilers.stop()
            attempt.thread.abandon()

    def _forget(self, attempt: "ActiveAttempt") -> None:
        if self.attempt is attempt:
            self.attempt = None
            self.state = "ended"
