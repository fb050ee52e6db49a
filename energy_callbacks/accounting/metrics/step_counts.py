"""Queues optimizer steps on the training thread, and counts them on the journal's thread."""

import math
import reprlib
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from energy_callbacks.accounting.step_marks import DONE, FETCH, READY, STEP, Event, StepMarks
from energy_callbacks.core.guard import FirstWarning, pass_on_signals
from energy_callbacks.sensing.estimation.series import Array

if TYPE_CHECKING:
    from energy_callbacks.sensing.frameworks.work_ends import WorkEnd, WorkEnds

# Further kinds of events: counts of earlier steps, and a change of phase.
_COUNTS, _PAUSE = range(FETCH + 1, FETCH + 3)
# An optimizer step, or counts that were missing in earlier steps: monotonic time; samples; tokens;
# waiting time since the previous step, s; number of steps (1, or 0 for counts of earlier steps);
# the end of the step; and whether the phase has changed since the previous step.
_Step = tuple[float, float | None, float | None, float, int, "WorkEnd | None", bool]

# Numbers of steps from which ``period_s`` is computed. Over 64 steps, steps that vary by 4 %
# have a mean period with a standard error of 0.5 %, which ``sensing.estimation.beats`` assumes.
_FEWEST_STEPS: Final = 16
_MOST_STEPS: Final = 64
# Integers below this number are exact as floating-point numbers.
_MOST_INT: Final = 2**53


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCounts:
    """Counts up to the end of one optimizer step, since the start of the attempt.

    Attributes:
        t_s: monotonic time at which the step ended; before the first step, the attempt's start.
        t_error_s: bound of the error of ``t_s``, s; ``None`` if no CUDA event has measured the end
            of the step, and before the first step. Without a CUDA event, ``t_s`` is the time at
            which the training thread had queued the step's work.
        steps: number of optimizer steps.
        samples: samples of all steps in this process; ``None`` if those of any step are unknown.
        tokens: tokens of all steps in this process; ``None`` if those of any step are unknown.
        wait_s: total time of waiting for data, s.
    """

    t_s: float
    t_error_s: float | None = None
    steps: int = 0
    samples: float | None = 0.0
    tokens: float | None = 0.0
    wait_s: float = 0.0


@dataclass(slots=True)
class _WorkCount:
    """A sum of samples or tokens, and the number of steps with an unknown count.

    A count that is not a finite number, or is negative in a step, is unknown; the first one is
    logged as a warning.
    """

    name: str
    setting: str
    reported: float = 0.0
    unknown_steps: int = 0
    warn: FirstWarning = field(default_factory=FirstWarning)

    def add(self, count: float | None, steps: int) -> None:
        """Add the count of a step; ``None`` if it is unknown.

        With ``steps=0``, the count is the sum for all earlier steps with an unknown count.
        """
        if count is None:
            self.unknown_steps += steps
            return
        # A tensor is converted here, on the journal's thread, and not on the training thread.
        try:
            number = float(count)
        except Exception:  # noqa: BLE001 - a value of the user, such as a tensor of several numbers
            pass_on_signals()
            number = math.nan
        if not math.isfinite(number) or (steps and number < 0.0):
            self.warn(
                "the number of %s of a step must be a finite number of at least 0, got %s; it "
                "counts as unknown, and figures that need it are left out; correct %s= of the "
                "meter or %s= of the callback",
                self.name,
                reprlib.repr(count),
                self.name,
                self.setting,
            )
            self.unknown_steps += steps
            return
        self.reported += number
        if not steps:
            self.unknown_steps = 0

    def add_all(self, counts: Sequence[Any], steps: Sequence[int]) -> None:
        """Add counts as ``add`` does; those of steps with integers, or with none, all at once."""
        whole = [count for count in counts if isinstance(count, int)]
        is_whole = all(steps) and len(whole) == len(counts)
        if is_whole and min(whole) >= 0 and max(whole) < _MOST_INT:
            self.reported += sum(whole)
        elif all(steps) and set(map(type, counts)) == {type(None)}:
            self.unknown_steps += len(counts)
        else:
            for count, number in zip(counts, steps, strict=True):
                self.add(count, number)

    @property
    def total(self) -> float | None:
        return None if self.unknown_steps else self.reported


class StepLog:
    """Queue of events from the training thread to the journal's thread, which counts them.

    The training thread only appends events. The journal's thread counts the steps, and finds the
    waits for data: from ``DONE``, or else from ``FETCH``, or else from ``STEP``, to the next
    ``READY``.

    Args:
        start_s: monotonic time of the attempt's start.
        ends: measures the ends of steps with CUDA events; ``None`` to use the times at which the
            steps were queued.

    Attributes:
        append: appends an ``Event``. It is called directly at every step, because each call of a
            Python function lengthens a training step by about 1 us.
        ends: as above.
        sees_waits: whether ``READY`` has been seen, so that waits are measured.
        tally: the counts at the last step that ``advance`` has counted.
    """

    def __init__(self, start_s: float, ends: "WorkEnds | None" = None) -> None:
        self.ends = ends
        self._events: deque[Event] = deque()
        self.append = self._events.append
        self._marks: list[StepMarks] = []
        self._new: deque[_Step] = deque()
        self._samples = _WorkCount("samples", "batch_size_fn")
        self._tokens = _WorkCount("tokens", "tokens_fn")
        self._stepped_s: float | None = None  # time of the last ``STEP``
        self._done_s: float | None = None  # time at which a wait has begun after it
        self._is_paused = True
        self._durations_s: deque[float] = deque(maxlen=_MOST_STEPS)
        self._wait_s = 0.0
        self._waits = array("d")  # start and end of each wait
        self._marked_s = start_s
        self.sees_waits = False
        self.tally = StepCounts(t_s=start_s)

    def marks(self, now_s: Callable[[], float]) -> StepMarks:
        """Return an object that reports events to this log until ``refuse`` is called."""
        self._marks.append(StepMarks(self.append, now_s))
        return self._marks[-1]

    def refuse(self) -> None:
        """Make all results of ``marks`` ignore further events: the attempt has ended."""
        for marks in self._marks:
            marks.end()

    def tell(self, t_s: float, samples: float | None, tokens: float | None) -> None:
        """Record samples and tokens of earlier steps that were reported without these counts.

        Args:
            t_s: monotonic time of this call.
            samples: number of samples in all earlier steps whose samples are still unknown. If
                there is no such step, the number is added to the total and may be negative.
                ``None`` changes nothing.
            tokens: number of tokens, with the same rules as ``samples``.
        """
        self.append((_COUNTS, t_s, samples, tokens, None))

    def pause(self) -> None:
        """Record that the phase changes: the time until the next batch is not a wait for data."""
        self.append((_PAUSE, -math.inf, None, None, None))

    @property
    def marked_s(self) -> float:
        """Monotonic time of the newest event; the attempt's start before the first event."""
        queued = self._events.copy()  # the training thread may append meanwhile
        return max([self._marked_s, *(event[1] for event in queued)])

    # The methods from here on run on the journal's thread.

    def _read_events(self) -> None:
        """Find waits, and the steps to count, in the events since the last call."""
        # There may be thousands of events per second, so the loop calls no function of Python, and
        # reads no attributes. Events that the training thread appends meanwhile are read later.
        queued, take = len(self._events), self._events.popleft
        self._marked_s = self.marked_s
        new, waits = self._new, self._waits
        stepped_s, done_s, wait_s = self._stepped_s, self._done_s, self._wait_s
        is_paused, sees_waits = self._is_paused, self.sees_waits
        for _ in range(queued):
            kind, t_s, samples, tokens, end = take()
            if kind == STEP:
                new.append((t_s, samples, tokens, wait_s, 1, end, is_paused))
                stepped_s, done_s, wait_s, is_paused = t_s, None, 0.0, False
            elif kind == READY:
                sees_waits = True
                start_s = stepped_s if done_s is None else done_s
                stepped_s = done_s = None
                if start_s is not None and t_s > start_s:
                    wait_s += t_s - start_s
                    waits.append(start_s)
                    waits.append(t_s)
            elif kind == DONE or (kind == FETCH and done_s is None):
                done_s = t_s
            elif kind == _COUNTS:
                new.append((t_s, samples, tokens, 0.0, 0, None, False))
            elif kind == _PAUSE:
                stepped_s, done_s, is_paused = None, None, True
        self._stepped_s, self._done_s, self._wait_s = stepped_s, done_s, wait_s
        self._is_paused, self.sees_waits = is_paused, sees_waits

    def take_waits(self, now_s: float) -> tuple[Array, float]:
        """Return the waits that ended since the last call, and the time up to which all are known.

        Each wait is a pair of monotonic times, start and end, (n, 2).
        """
        self._read_events()
        waits, self._waits = np.array(self._waits).reshape(-1, 2), array("d")
        start_s = self._stepped_s if self._done_s is None else self._done_s
        return waits, now_s if start_s is None else min(start_s, now_s)

    def advance(self, until_s: float) -> StepCounts:
        """Count the steps that ended by ``until_s``; return the counts at the last of them."""
        if self.ends:
            self.ends.settle()
        self._read_events()
        before, new, durations_s = self.tally, self._new, self._durations_s
        t_s, t_error_s, count, wait_s = before.t_s, before.t_error_s, before.steps, before.wait_s
        ended = 0
        for marked_s, _, _, waited_s, steps, end, is_first in new:
            ended_s = end.end_s if end else marked_s
            if ended_s is None or ended_s > until_s:
                break
            ended += 1
            if steps:
                if ended_s > t_s:
                    if not is_first:
                        durations_s.append(ended_s - t_s)
                    # A step without an event has the time when it was queued. At that time, the
                    # device may not have finished the step before it, so ``ended_s`` may be before
                    # ``t_s``.
                    t_s = ended_s
                t_error_s = end.error_s if end else None
                count += steps
                wait_s += waited_s
        if ended:
            columns = zip(*(new.popleft() for _ in range(ended)), strict=True)
            _, samples, tokens, _, numbers, *_ = columns
            self._samples.add_all(samples, numbers)
            self._tokens.add_all(tokens, numbers)
        self.tally = StepCounts(
            t_s=t_s,
            t_error_s=t_error_s,
            steps=count,
            samples=self._samples.total,
            tokens=self._tokens.total,
            wait_s=wait_s,
        )
        return self.tally

    @property
    def period_s(self) -> float | None:
        """Mean time between the ends of the last counted steps, s; ``None`` for too few steps.

        Steps during which the phase changed are left out.
        """
        durations_s = self._durations_s
        is_known = len(durations_s) >= _FEWEST_STEPS
        return sum(durations_s) / len(durations_s) if is_known else None

    def close(self) -> None:
        """End the log; for a step that still runs, the end is the time when it was queued."""
        if self.ends:
            self.ends.close()

    @property
    def host_marks(self) -> tuple[int, int]:
        """Numbers of steps without a CUDA event, and of all steps; ``(0, 0)`` without ``ends``."""
        return (self.ends.host_marks, self.ends.marked) if self.ends else (0, 0)
