"""Optimizer steps with their samples, tokens and waits: noted at once, counted later."""

from collections import deque
from dataclasses import dataclass
from typing import Final

from energy_callbacks.sensing.frameworks.step_ends import StepEnd, StepEnds

# An optimizer step as the training thread has reported it, or a later correction of earlier steps:
# time, samples, tokens, wait before it in s, steps (1 or 0), and its end if an event dates it. It
# is created on the training thread, where a named tuple would take three times as long.
_Step = tuple[float, float | None, float | None, float, int, StepEnd | None]

# A minute of the shortest steps (1.6 ms), for when the journal's thread is held up.
_KEPT_WAITS: Final = 40_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCounts:
    """Counts up to the end of one optimizer step, since the start of the attempt.

    Attributes:
        t_s: when that step ended.
        t_error_s: bound of the error of ``t_s`` if an event of the device dated it; ``None``
            if ``t_s`` is when the training thread had queued the step.
        steps: number of optimizer steps.
        samples: samples of all steps; ``None`` while one of them has not reported its samples.
        tokens: tokens of all steps; ``None`` while one of them has not reported its tokens.
        wait_s: time between the end of a batch and the arrival of the next one, in total.
    """

    t_s: float
    t_error_s: float | None = None
    steps: int = 0
    samples: float | None = 0.0
    tokens: float | None = 0.0
    wait_s: float = 0.0


@dataclass(slots=True)
class _WorkCount:
    """A sum of samples or tokens, and the number of steps that have not reported theirs."""

    reported: float = 0.0
    unknown_steps: int = 0

    def add(self, count: float | None, steps: int) -> None:
        """Add a step, or with ``steps=0`` a count for all steps that have not reported theirs."""
        if count is None:
            self.unknown_steps += steps
            return
        # A tensor is converted here, on the journal's thread, and not on the training thread.
        self.reported += float(count)
        if not steps:
            self.unknown_steps = 0

    @property
    def total(self) -> float | None:
        return None if self.unknown_steps else self.reported


class StepLog:
    """A queue of steps from the training thread to the journal's thread, which counts them.

    ::

        mark_ready   a batch has arrived           wait = time since the last batch was done
        mark_done    a batch is done               (a micro-batch, or the pause of a phase)
        step         a batch and an optimizer step are done

    Args:
        start_s: start of the attempt.
        ends: dates the steps by events of the device; ``None``: a step ends when it was queued.

    Attributes:
        marked_s: when the training thread last reported anything.
        sees_waits: whether the arrival of batches is reported.
        tally: the counts at the last step that ``advance`` has counted.
    """

    def __init__(self, start_s: float, ends: StepEnds | None = None) -> None:
        self._ends = ends
        self._new: deque[_Step] = deque()
        self._samples, self._tokens = _WorkCount(), _WorkCount()
        self._done_s: float | None = None
        self._wait_s = 0.0
        self._waits: deque[tuple[float, float]] = deque(maxlen=_KEPT_WAITS)
        self.sees_waits = False
        self.marked_s = start_s
        self.tally = StepCounts(t_s=start_s)

    def mark_ready(self, t_s: float) -> None:
        """Note that a batch has arrived."""
        self.sees_waits = True
        self.marked_s = max(self.marked_s, t_s)
        if self._done_s is not None:
            if t_s > self._done_s:
                self._wait_s += t_s - self._done_s
                self._waits.append((self._done_s, t_s))
            self._done_s = None

    def mark_done(self, t_s: float) -> None:
        """Note that a batch is done: from now on the loop waits for data."""
        self._done_s = t_s
        self.marked_s = max(self.marked_s, t_s)

    def pause(self) -> None:
        """Note that another phase begins: the time that follows is not a wait for data."""
        self._done_s = None

    def take_waits(self, now_s: float) -> tuple[list[tuple[float, float]], float]:
        """Return the waits (start, end) since the last call, and until when all are known.

        A wait is reported when it has ended.
        """
        waiting_since_s = self._done_s  # read first: the training thread continues to report
        waits = [self._waits.popleft() for _ in range(len(self._waits))]
        return waits, now_s if waiting_since_s is None else min(waiting_since_s, now_s)

    def step(self, t_s: float, samples: float | None, tokens: float | None) -> None:
        """Note that an optimizer step has ended now."""
        end = self._ends.mark(t_s) if self._ends else None
        self._new.append((t_s, samples, tokens, self._wait_s, 1, end))
        self._wait_s = 0.0
        self.marked_s = self._done_s = t_s

    def tell(self, t_s: float, samples: float | None, tokens: float | None) -> None:
        """Note counts of steps that did not report them, or only a part of them.

        ``None`` leaves that count as it is.
        """
        self._new.append((t_s, samples, tokens, 0.0, 0, None))

    def advance(self, until_s: float) -> StepCounts:
        """Count the steps that ended by ``until_s``; returns the counts at the newest of them."""
        if self._ends:
            self._ends.settle()
        before, new = self.tally, self._new
        t_s, t_error_s, count, wait_s = before.t_s, before.t_error_s, before.steps, before.wait_s
        while new:
            marked_s, samples, tokens, waited_s, steps, end = new[0]
            ended_s = end.end_s if end else marked_s
            if ended_s is None or ended_s > until_s:
                break
            new.popleft()
            self._samples.add(samples, steps)
            self._tokens.add(tokens, steps)
            if steps:
                # A step that no event has dated may lie before one that the device has dated.
                t_s, t_error_s = max(ended_s, t_s), end.error_s if end else None
                count += steps
                wait_s += waited_s
        self.tally = StepCounts(
            t_s=t_s,
            t_error_s=t_error_s,
            steps=count,
            samples=self._samples.total,
            tokens=self._tokens.total,
            wait_s=wait_s,
        )
        return self.tally

    def close(self) -> None:
        """End the log: steps that still run on the device end when they were queued."""
        if self._ends:
            self._ends.close()

    @property
    def host_marks(self) -> tuple[int, int]:
        """Steps that no event has dated, and all steps; zeros if no events were requested."""
        return (self._ends.host_marks, self._ends.steps) if self._ends else (0, 0)
