"""The journal's thread of an attempt: its periodic work, and the end of the attempt."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from energy_callbacks.accounting.grid.intensity_log import IntensityLog
from energy_callbacks.accounting.journal.journal import JournalWriter
from energy_callbacks.accounting.journal.raw_readings import RawReadings
from energy_callbacks.accounting.journal.stale_sensors import StaleSensors
from energy_callbacks.accounting.journal.wall_clock import WallClock
from energy_callbacks.accounting.metrics.forecast import Forecaster
from energy_callbacks.accounting.metrics.scalars import ScalarBoard
from energy_callbacks.accounting.recorder import JournalRecorder
from energy_callbacks.core.active_call import ActiveCall
from energy_callbacks.core.guard import logger
from energy_callbacks.sensing.clock import Clock, Latch, Periodic
from energy_callbacks.sensing.sampler import Sampler
from energy_callbacks.sensing.schedule import BEAT_S, next_multiple_s

# Maximum time that the journal's thread waits for the last readings of all sources together, s.
_STOP_TIMEOUT_S: Final = 3.0
# Maximum time to wait for the end of an attempt, s: for the sources, and for writing the journal.
_OVER_S: Final = 2 * _STOP_TIMEOUT_S
# Maximum wait for the last readings before the figures of the last row are computed, s. Reading a
# GPU's newest values takes about 1 ms.
_LAST_READINGS_S: Final = 0.015
# If the training takes longer than this to log its last row, the journal is closed meanwhile, s.
_LOG_S: Final = 1.0
# Maximum time that the journal's thread waits at the end until the journal is on the disk, s.
_DISK_S: Final = 1.0
# Maximum time that the journal's thread waits at the end until settings of GPUs are restored, s.
_RESTORE_S: Final = 2.0
_HEAL: Final = "run energy-callbacks powercap restore"
# A call of a source that takes longer than this causes a warning, s.
_HUNG_S: Final = 5.0
# Interval between two checks in ``write_phases``, s.
_POLL_S: Final = 0.02
# Text for the journal if ``stop`` was not called and the exception is unknown.
_LEFT: Final = (
    "the run stopped unexpectedly: by Ctrl-C, SIGTERM or a caught exception, or because stop() "
    "was not called"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _End:
    """How an attempt ended.

    Attributes:
        t_s: monotonic time of the end.
        status: ``finished``, ``failed`` or ``interrupted``.
        error: why it ended early; ``None`` if it finished.
        left_s: last moment at which the training was known to run, if nobody called ``stop``;
            otherwise ``None``.
    """

    t_s: float
    status: str
    error: str | None
    left_s: float | None = None


class PowerControlRun(Protocol):
    """Changes power limits of GPUs during one attempt, on a thread of its own."""

    def ask_to_stop(self) -> None:
        """Restore what was changed, on its own thread; do not wait."""
        ...

    def wait(self, timeout_s: float) -> bool:
        """Wait until everything is restored, and return whether it is."""
        ...


@dataclass(eq=False, kw_only=True)
class JournalThread:
    """Updates the parts of one attempt on a thread of its own, and ends the attempt.

    The training thread never waits for a lock of an attempt, so that a signal handler may call any
    method. The journal's thread does all the work of ending an attempt::

        training thread                     journal's thread
        ask_to_end (takes the time)
        wait_for_last_row                   figures of the last row
        [the caller logs this row]
        let_go                              last readings, totals, end of the journal
        [wait_until_over]                   calls the function that was passed to let_go

    Attributes:
        clock: tells the time and runs the thread.
        interval_s: time between two updates.
        sampler: reads the sources; it is started and stopped here.
        recorder: writes the journal.
        writer: the file of the journal; it is closed here, like ``raw``.
        raw: the file of raw readings; ``None`` for none.
        disk: copies the files to the disk until it is asked to stop.
        emissions_kg: emissions so far.
        board: figures of the attempt.
        forecaster: forecasts of the run.
        is_first_rank: whether this process is rank 0.
        on_failure: called with a message on this thread if an error in this package stops it.
        call: the newest call of a training function, such as ``fit``; ``None`` if unknown.
        on_left: called on this thread when ``call`` has ended and the attempt has not.
        alive_s: last moment at which the training was known to run, in monotonic time.
        power: changes power limits, and restores them when the attempt ends; ``None`` if there is
            none.
        is_let_go: whether ``let_go`` was called.
        over: set when the journal has ended, also because of an error in this package.
    """

    clock: Clock
    interval_s: float
    sampler: Sampler
    recorder: JournalRecorder
    writer: JournalWriter
    raw: RawReadings | None
    disk: Periodic
    emissions_kg: IntensityLog
    board: ScalarBoard
    forecaster: Forecaster
    is_first_rank: bool
    on_failure: Callable[[str], None]
    call: ActiveCall | None
    on_left: Callable[[], object]

    def __post_init__(self) -> None:
        start_s = self.alive_s = self.recorder.start_s
        self._steps, self._timeline = self.recorder.steps, self.recorder.timeline
        self.power: PowerControlRun | None = None
        self._end: _End | None = None
        self._has_last_row, self.over = Latch(), Latch()
        self._is_updated = Latch()
        self.is_let_go = self._is_broken = self._was_left = False
        self._then: Callable[[], None] | None = None
        self._known_hung: set[str] = set()
        # Checks that run at every update, by the code of the warning that the check may cause.
        self._checks: dict[str, StaleSensors | WallClock] = {
            "quantity_silent": StaleSensors(self._timeline, start_s),
            "wall_clock_set": WallClock(self.clock, start_s),
        }
        self.sampler.start()
        self._periodic = self.clock.every(
            self.interval_s, self._update, name="energy_callbacks journal"
        )

    def _update(self) -> float:
        """Do the periodic work of the journal's thread; return the time to the next call, s."""
        start_s = self.clock.monotonic_s()
        is_updated = self._is_updated
        if self._end is None and not self.over.is_set:
            self._keep_books()
            is_updated.set()
            self._look_after_call()
        if self._is_broken and not self.over.is_set:
            self._finish(None)
        if self._end is not None:
            return self._wind_up(self._end)
        wanted_s = next_multiple_s(start_s, self.interval_s)
        return min(wanted_s, next_multiple_s(start_s, BEAT_S)) - start_s

    def _keep_books(self) -> None:
        try:
            self.recorder.update()
            self.emissions_kg.update()
            self.board.update()
            self.forecaster.update()
            if self.raw is not None:
                self.raw.update()
            self._warn_of_hung()
            for code, check in self._checks.items():
                for message in check.news():
                    self.recorder.warn(code, message)
        except Exception:  # noqa: BLE001 - a bug here must not stop the training
            self._fail()

    def _fail(self) -> None:
        self._is_broken = True
        self.on_failure("writing the energy journal failed; energy is no longer measured")

    def _look_after_call(self) -> None:
        """End the attempt if two checks in a row find that the user's call has ended.

        The time between the checks lets an interactive shell store the exception that ended the
        call.
        """
        call = self.call  # the training thread may replace it
        if call is None:
            return
        is_left = not call.is_under_way()
        if not is_left:
            self.alive_s = self.clock.monotonic_s()
        elif self._was_left:
            self.on_left()
        self._was_left = is_left

    def _warn_of_hung(self) -> None:
        for name, waited_s in self.sampler.hung_s(_HUNG_S).items():
            if name not in self._known_hung:
                self._known_hung.add(name)
                self.recorder.warn(
                    "source_hangs", f"{name} has not responded for {waited_s:.0f} s."
                )

    def write_phases(self, timeout_s: float) -> None:
        """Write the energies of phases up to now to the journal, on its thread, for a report."""
        self.recorder.is_asked = True
        deadline_s = self.clock.monotonic_s() + timeout_s
        self._periodic.run_soon()
        while self.recorder.is_asked and self.clock.monotonic_s() < deadline_s:
            if self.over.is_set or self._is_broken:
                break
            self.clock.sleep(_POLL_S)

    def update(self, timeout_s: float) -> None:
        """Update the figures on this thread, with all readings so far; wait at most this time."""
        is_updated = self._is_updated = Latch()
        self._periodic.run_soon()
        is_updated.wait(timeout_s)

    @property
    def left_s(self) -> float:
        """Last moment at which the training is known to have run, in monotonic time."""
        return max(self.alive_s, self._steps.marked_s)

    @property
    def is_ending(self) -> bool:
        """Whether the attempt was asked to end."""
        return self._end is not None

    def ask_to_end(self, error: BaseException | None) -> None:
        """End the attempt now, and read every source once more, on the source's thread.

        If the attempt has already ended, nothing happens.

        Args:
            error: the exception that ended the training; ``None`` if it ended without one.
        """
        self._ask_to_end(*_status_and_text(error))

    def ask_to_end_left(self) -> None:
        """End an attempt for which ``stop`` was not called.

        The open phases end at the last moment at which the training was known to run.
        """
        error = self.call.error() if self.call else None
        status, text = ("failed", _LEFT) if error is None else _status_and_text(error)
        self._ask_to_end(status, text, left_s=self.left_s)

    def _ask_to_end(self, status: str, error: str | None, left_s: float | None = None) -> None:
        if self._end is None:
            now_s = self.clock.monotonic_s()
            self._end = _End(t_s=now_s, status=status, error=error, left_s=left_s)
            self._stop_measuring()

    def wait_for_last_row(self, timeout_s: float) -> None:
        """Let the journal's thread compute the figures of the last row; wait for at most this time.

        If they are not ready in time, ``board`` has the figures before them.
        """
        self._periodic.run_soon()
        self._has_last_row.wait(timeout_s)

    def let_go(self, then: Callable[[], None] | None = None) -> None:
        """Close the journal on its thread, then call a function there; do not wait for this.

        Args:
            then: function that must not raise.
        """
        self._then = then
        self.is_let_go = True
        self._periodic.ask_to_stop()
        self._periodic.wait(0.0)  # in virtual time, the job runs only if it is waited for

    def wait_until_over(self) -> bool:
        """Wait a few seconds for the end of the journal, and return whether it has ended."""
        return self.over.wait(_OVER_S)

    def _wind_up(self, end: _End) -> float:
        """Do the next part of the end; return the time to the next call, s."""
        if not self.is_let_go and not self._has_last_row.is_set:
            self._prepare_last_row(end)
            return _LOG_S
        if not self.over.is_set:
            self._finish(end)
        if self.is_let_go and (then := self._then) is not None:
            self._then = None
            then()
        return _LOG_S

    def _prepare_last_row(self, end: _End) -> None:
        try:
            is_late = bool(self.sampler.stop(_LAST_READINGS_S))
            if not is_late:
                self._timeline.finish()
            self.recorder.see_until(end.t_s)
            self.board.update(is_final=True, extrapolates=is_late)
        except Exception:  # noqa: BLE001 - a bug here must not stop the training
            self._fail()
        finally:
            self._has_last_row.set()

    def _finish(self, end: _End | None) -> None:
        """End the journal: with ``totals``, or without them if ``end`` is ``None``."""
        try:
            self._wait_for_power()
            if end is not None:
                self._write_end(end)
        except Exception:  # noqa: BLE001 - a bug here must not stop the training
            self._fail()
        finally:
            if self.raw is not None:
                self.raw.close()
            self.writer.close()
            if self.call is not None:
                self.call.let_go()
            self.over.set()
            self.disk.ask_to_stop()
            self.disk.wait(_DISK_S)

    def _wait_for_power(self) -> None:
        if self.power is None or self.power.wait(_RESTORE_S):
            return
        message = "The power limit was not restored within two seconds."
        self.recorder.warn("power_limit", message, _HEAL)
        logger.warning("%s To restore it, %s.", message, _HEAL)  # the journal may be broken

    def _write_end(self, end: _End) -> None:
        for name in self.sampler.stop(_STOP_TIMEOUT_S):
            self.recorder.warn("source_hangs", f"{name} did not respond at the end of the run.")
        self.recorder.see_until(end.t_s)
        self._keep_books()
        self._timeline.finish()
        if end.left_s is not None:
            self.recorder.leave_all(end.left_s)
        if self.is_first_rank and (found := self.board.short_span()):
            self.recorder.warn("short_span", *found)
        self.recorder.finish(
            end.status,
            end.error,
            end_s=end.t_s,
            sampler_cpu_s=self.sampler.cpu_s + self._periodic.cpu_s,
            missed_readings=self.sampler.missed,
        )
        self.board.update(is_final=True)

    def _stop_measuring(self) -> None:
        self._steps.refuse()
        if self.power is not None:
            self.power.ask_to_stop()
        self.sampler.ask_to_stop()

    def abandon(self) -> None:
        """Ask all threads of the attempt to stop; return without waiting.

        The journal's thread then restores power and closes the files, but writes no totals.
        """
        self._is_broken = True
        self._stop_measuring()
        self._periodic.ask_to_stop()
        self.disk.ask_to_stop()

    def wait_for_journal(self, timeout_s: float) -> None:
        """Wait until the journal's thread has stopped, for at most ``timeout_s``."""
        self._periodic.wait(timeout_s)


def _status_and_text(error: BaseException | None) -> tuple[str, str | None]:
    if error is None:
        return "finished", None
    status = "failed" if isinstance(error, Exception) else "interrupted"
    return status, f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
