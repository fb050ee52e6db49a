"""Ends the attempts of a meter, and the calls of frameworks in them; then reports are made."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from energy_callbacks.accounting.lifecycle import Lifecycle
from energy_callbacks.core.config import EnergyConfig
from energy_callbacks.core.guard import ForeignCalls, harmless, logger
from energy_callbacks.report_process import meter_reports, summary
from energy_callbacks.sensing.clock import Clock

if TYPE_CHECKING:
    from energy_callbacks.accounting.attempt import ActiveAttempt
    from energy_callbacks.report_process.pages import Pages

# Maximum wait in seconds for the figures of the last row, most of it for the sensors. The end of a
# training may take 50 ms.
_LAST_ROW_S: Final = 0.02


@dataclass(slots=True)
class Ending:
    """What the caller of ``EnergyMeter.ending`` adds to the end of an attempt.

    Attributes:
        pages: pages of TensorBoard that are written together with the report of the attempt;
            ``None`` for none.
    """

    pages: "Pages | None" = None


class Endings:
    """Ends the attempts of one meter.

    Args:
        lifecycle: the attempts of the meter.
        config: settings of the meter.
        clock: clock of the meter.

    Attributes:
        say: function that prints the messages of ``tell``.
    """

    def __init__(self, lifecycle: Lifecycle, config: EnergyConfig, clock: Clock) -> None:
        self._lifecycle = lifecycle
        self._config = config
        self._reports = meter_reports.MeterReports(clock)
        self._messages = ForeignCalls("a message about energy cannot be printed", clock.monotonic_s)
        self.say: Callable[[str], None] = logger.info

    def tell(self, message: str) -> None:
        """Print a message with ``say``."""
        self._messages.call(lambda: self.say(message))

    def stop(self, error: BaseException | None) -> None:
        """End the attempt; see ``EnergyMeter.stop``."""
        attempt = self._lifecycle.running
        if attempt is not None and attempt.calls:
            with self.of_attempt(error):
                pass
        self._lifecycle.stop(error)

    @contextlib.contextmanager
    def of_attempt(self, error: BaseException | None) -> Iterator[Ending]:
        """End the attempt; see ``EnergyMeter.ending``."""
        attempt, ending = self._lifecycle.running, Ending()
        try:
            self._begin(error)
            yield ending
        finally:
            if attempt is not None:
                _keep_pages(attempt, ending)
                self._close(attempt, error or sys.exc_info()[1])

    @contextlib.contextmanager
    def of_call(self, error: BaseException | None) -> Iterator[Ending]:
        """End a framework's call: end the attempt as ``of_attempt`` does, if it began in the call.

        An attempt of the user goes on. The phases of the call end, and in the block, figures are
        those up to now. The report and its pages are made when the user ends the attempt.

        Args:
            error: see ``EnergyMeter.ending``.
        """
        attempt, ending = self._lifecycle.running, Ending()
        if attempt is None or attempt.ends_with_call:
            with self.of_attempt(error) as ending:
                yield ending
            return
        call = attempt.call
        self._lifecycle.end_call(_LAST_ROW_S)
        try:
            yield ending
        finally:
            _keep_pages(attempt, ending)
            if call is not None:
                call.let_go()

    def of_left(self, attempt: "ActiveAttempt") -> None:
        """Complete an attempt that ended without ``stop``; runs on the journal's thread."""
        self._announce(attempt)
        self._reports.make(attempt)

    def wait_for_report(self, timeout_s: float) -> Path | None:
        """Wait for the report of the last attempt; see ``EnergyMeter.wait_for_report``."""
        self._lifecycle.end_if_left()
        last = self._lifecycle.own
        return None if last is None else self._reports.wait(last, timeout_s)

    @harmless
    def _begin(self, error: BaseException | None) -> None:
        if (attempt := self._lifecycle.ask_to_end(error)) is not None:
            attempt.thread.wait_for_last_row(_LAST_ROW_S)

    @harmless
    def _close(self, attempt: "ActiveAttempt", error: BaseException | None) -> None:
        # Does nothing, unless a signal handler raised before the attempt was asked to end.
        self._lifecycle.ask_to_end(error)
        self._announce(attempt)
        self._lifecycle.close(attempt, lambda: self._reports.make(attempt))
        if not meter_reports.has_exit_handlers():
            attempt.thread.wait_until_over()
            self.wait_for_report(60.0)

    def _announce(self, attempt: "ActiveAttempt") -> None:
        """Print a summary on rank 0."""
        if attempt.rank == 0:
            path = attempt.run_folder / "energy_report.html"
            self.tell(summary.line(attempt.board.whole(), attempt.devices, path, self._config))

    def _abandon(self, message: str) -> None:
        self._lifecycle._abandon(message)


def _keep_pages(attempt: "ActiveAttempt", ending: Ending) -> None:
    if ending.pages is not None:
        attempt.pages.append(ending.pages)
