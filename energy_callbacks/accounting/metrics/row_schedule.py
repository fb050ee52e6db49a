"""Decides at which steps an adapter logs a row, that is, our figures together with the loss."""

import math
from collections.abc import Callable
from typing import Final

# Shortest time between two rows if the user has not chosen the steps, s. Most figures change once
# per second, and writing a row of 25 figures with a logger takes the training thread 0.1 to 1 ms.
ROW_S: Final = 1.0
# If writing a row takes longer, the next row comes after this many times the duration, so that rows
# take at most 1 % of the time: loggers that ask a server take 0.1 s or more. But figures are wanted
# at least once per ``_LONGEST_S``.
_PAUSES: Final = 100.0
_LONGEST_S: Final = 60.0


class RowSchedule:
    """Decides whether a row is due at a step.

    ::

        every_n_steps=10    at each step whose number is divisible by 10
        every_n_steps=None  at the steps at which the framework logs its loss, but not within a
                            second after the previous row; if writing it took more than 10 ms, not
                            within 100 times that duration, or a minute if that is shorter

    Rows at the end of an epoch, of a validation and of a training do not ask the schedule.

    Args:
        now_s: returns the monotonic time, s; it is read only at steps at which a row is possible.
        every_n_steps: the user's setting; ``None`` if the user has not set it.

    Attributes:
        every_n_steps: as above.
        next_s: monotonic time before which no row is due; minus infinity if ``every_n_steps`` is
            set. Hooks that run at every step compare it with a time that they have read.
    """

    def __init__(self, now_s: Callable[[], float], every_n_steps: int | None = None) -> None:
        self._now_s = now_s
        self.every_n_steps = every_n_steps
        self.next_s = -math.inf

    def is_due(self, step: int, *, logs_loss: bool) -> bool:
        """Return whether a row is due at a step.

        Args:
            step: number of the step, counted as the framework counts the steps of its loss.
            logs_loss: whether the framework logs its loss at this step.
        """
        if self.every_n_steps is not None:
            return step % self.every_n_steps == 0
        return logs_loss and self._now_s() >= self.next_s

    def logged(self, took_s: float = 0.0) -> None:
        """Note that a row has been logged, also if the schedule was not asked.

        Args:
            took_s: time that the loggers took to write the row, s.
        """
        if self.every_n_steps is None:
            self.next_s = self._now_s() + min(max(ROW_S, _PAUSES * took_s), _LONGEST_S)
