"""Reports the events of a step from adapters, which do this at every batch.

In a training, caches are cold: each call of a Python function takes about 1 us. Therefore hooks
that run at every batch call no Python function. They append the event themselves::

    marks.append((STEP, marks.now_s(), samples, tokens, None))
"""

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from energy_callbacks.core import forks

if TYPE_CHECKING:
    from energy_callbacks.sensing.frameworks.work_ends import WorkEnd

READY, DONE, STEP, FETCH = range(4)
"""Kinds of events: a batch has arrived; a batch without an optimizer step is done; a batch with a
step is done; the training begins to fetch a batch, which follows ``DONE`` or ``STEP``."""

# An event: its kind; monotonic time; samples; tokens; and the end of the step, if CUDA events
# measure the ends. It is a plain tuple, because creating a named tuple would take three times as
# long.
Event = tuple[int, float, float | None, float | None, "WorkEnd | None"]


class StepMarks:
    """Reports events of a step, now.

    Args:
        append: receives the events.
        now_s: returns the monotonic time, s.

    Attributes:
        append: as above; after ``end`` and in a forked child, it ignores events.
        now_s: as above.
    """

    __slots__ = ("__weakref__", "append", "now_s")

    def __init__(self, append: Callable[[Event], None], now_s: Callable[[], float]) -> None:
        self.append = append
        self.now_s = now_s
        _not_ended.add(self)

    def ready(self) -> None:
        """Report that a batch has arrived (``data_ready``)."""
        self.append((READY, self.now_s(), None, None, None))

    def done(self) -> None:
        """Report that a batch without an optimizer step is done (``batch_done``)."""
        self.append((DONE, self.now_s(), None, None, None))

    def step(self, samples: float | None = None, tokens: float | None = None) -> None:
        """Report that an optimizer step has ended; see ``EnergyMeter.step``."""
        self.append((STEP, self.now_s(), samples, tokens, None))

    def end(self) -> None:
        """Ignore all further events."""
        self.append = _ignore


def _ignore(event: Event) -> None:
    pass


_not_ended: "weakref.WeakSet[StepMarks]" = weakref.WeakSet()


def _end_all() -> None:
    for marks in tuple(_not_ended):
        marks.end()


# A forked child has no thread that reads the events.
forks.call_in_children(_end_all)
