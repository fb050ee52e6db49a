"""Decides at which steps an adapter logs a row, that is, our figures together with the loss."""

import math
from typing import Final

# Shortest time between two rows if the user has not chosen the steps, s. Most figures change once
# per second, and writing a row of 25 figures with a logger takes the training thread 0.1 to 1 ms.
ROW_S: Final = 1.0


class RowSchedule:
    """Decides whether a row is due at a step.

    ::

        every_n_steps=10    at each step whose number is divisible by 10
        every_n_steps=None  at the steps at which the framework logs its loss, but not within a
                            second after the previous row

    Rows at the end of an epoch, of a validation and of a training do not ask the schedule.

    Args:
        every_n_steps: the user's setting; ``None`` if the user has not set it.
    """

    def __init__(self, every_n_steps: int | None = None) -> None:
        self.every_n_steps = every_n_steps
        self._next_s = -math.inf

    def is_due(self, step: int, t_s: float, *, logs_loss: bool) -> bool:
        """Return whether a row is due at a step.

        Args:
            step: number of the step, counted as the framework counts the steps of its loss.
            t_s: monotonic time, s.
            logs_loss: whether the framework logs its loss at this step.
        """
        if self.every_n_steps is not None:
            return step % self.every_n_steps == 0
        return logs_loss and t_s >= self._next_s

    def logged(self, t_s: float) -> None:
        """Note that a row has been logged, also if the schedule was not asked.

        Args:
            t_s: monotonic time, s.
        """
        self._next_s = t_s + ROW_S
