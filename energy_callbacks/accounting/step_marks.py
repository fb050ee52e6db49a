"""Functions that report the events of a step, for adapters that call them at every batch.

In a training, caches are cold: each call of a Python function and each attribute that it reads may
take 1 us. So these functions read a clock and append to a queue, and reach both without attributes.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from energy_callbacks.accounting.metrics.step_counts import DONE, READY, STEP, StepLog
from energy_callbacks.core import forks


class Step(Protocol):
    """Reports that an optimizer step has ended now; see ``EnergyMeter.step``."""

    def __call__(self, samples: float | None = None, tokens: float | None = None) -> None:
        """Report the step."""
        ...


class StepMarks(NamedTuple):
    """Functions that report events of a step, now.

    Attributes:
        ready: reports that a batch has arrived (``data_ready``).
        done: reports that a batch without an optimizer step is done (``batch_done``).
        step: reports that an optimizer step has ended.
    """

    ready: Callable[[], None]
    done: Callable[[], None]
    step: Step


def step_marks(log: StepLog, now_s: Callable[[], float]) -> StepMarks:
    """Return functions that append to a log; they do nothing when it is closed, and after a fork.

    Args:
        log: log of a running attempt, without CUDA events.
        now_s: returns the monotonic time, s.
    """
    append = log.append

    def ready() -> None:
        if log.generation == forks.generation:
            append((READY, now_s(), None, None, None))

    def done() -> None:
        if log.generation == forks.generation:
            append((DONE, now_s(), None, None, None))

    def step(samples: float | None = None, tokens: float | None = None) -> None:
        if log.generation == forks.generation:
            append((STEP, now_s(), samples, tokens, None))

    return StepMarks(ready, done, step)
