"""Optimizer steps with their samples, tokens and waits: noted at once, pooled later."""

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from energy_callbacks.sensing.frameworks.step_ends import StepEnd, StepEnds

# An optimizer step as the training thread has seen it, or a later correction of steps before: when,
# samples, tokens, wait before it in s, steps (1 or 0), and its end if events date it. A plain
# tuple, because it is made on the training thread: a named one takes three times as long.
_Step = tuple[float, float | None, float | None, float, int, "StepEnd | None"]

# A minute of the shortest steps (1.6 ms), which wait while the journal's thread is held up.
_KEPT_WAITS: Final = 40_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCounts:
    """Everything up to and with one optimizer step. Counts are since the start of the attempt.

    Attributes:
        t_s: when that step ended.
        t_error_s: bound of the error of ``t_s`` if an event of the device dated it; ``None``
            if it is the moment at which the training thread had queued the step.
        steps: optimizer steps.
        told_samples: samples of the steps that reported them at once or later.
        told_tokens: tokens of those steps.
        untold_samples: how many of the steps have not said how many samples they consumed.
        untold_tokens: how many have not said how many tokens they consumed.
        wait_s: time between the end of one batch and the data of the next being ready.
    """

    t_s: float
    t_error_s: float | None = None
    steps: int = 0
    told_samples: float = 0.0
    told_tokens: float = 0.0
    untold_samples: int = 0
    untold_tokens: int = 0
    wait_s: float = 0.0

    @property
    def samples(self) -> float | None:
        """Samples of all steps; ``None`` while one has not said."""
        return None if self.untold_samples else self.told_samples

    @property
    def tokens(self) -> float | None:
        """Tokens of all steps; ``None`` while one has not said."""
        return None if self.untold_tokens else self.told_tokens


class StepLog:
    """Steps go in on the training thread, tallies come out on the writer's.

    ::

        mark_ready   data of a batch is there      wait = since the last batch was done
        mark_done    a batch is done               (a micro-batch, or the pause of a phase)
        step         ... and an optimizer step too

    Args:
        start_s: start of the attempt.
        ends: dates the steps by events of the device; ``None``: a step ends when it was queued.

    Attributes:
        marked_s: when the training thread last reported.
    """

    def __init__(self, start_s: float, ends: "StepEnds | None" = None) -> None:
        self._ends = ends
        self._new: deque[_Step] = deque()
        self._done_s: float | None = None
        self._wait_s = 0.0
        self._sees_waits = False
        self._waits: deque[tuple[float, float]] = deque(maxlen=_KEPT_WAITS)
        self.marked_s = start_s
        self._tally = StepCounts(t_s=start_s)

    @property
    def sees_waits(self) -> bool:
        """Whether anybody marks that data is ready."""
        return self._sees_waits

    @property
    def tally(self) -> StepCounts:
        """Everything that ``advance`` has counted so far."""
        return self._tally

    def mark_ready(self, t_s: float) -> None:
        """The data of a batch is there."""
        self._sees_waits = True
        self.marked_s = max(self.marked_s, t_s)
        if self._done_s is not None:
            if t_s > self._done_s:
                self._wait_s += t_s - self._done_s
                self._waits.append((self._done_s, t_s))
            self._done_s = None

    def mark_done(self, t_s: float) -> None:
        """A batch is done: from now on the loop waits for data."""
        self._done_s = t_s
        self.marked_s = max(self.marked_s, t_s)

    def pause(self) -> None:
        """Another phase begins: what follows is no wait for data."""
        self._done_s = None

    def take_waits(self, now_s: float) -> tuple[list[tuple[float, float]], float]:
        """Waits (start, end) that have ended since the last call; and up to when all are known.

        A wait is reported when it has ended.
        """
        going_on_since_s = self._done_s  # before the rest: the training thread goes on marking
        waits = [self._waits.popleft() for _ in range(len(self._waits))]
        return waits, now_s if going_on_since_s is None else min(going_on_since_s, now_s)

    def step(self, t_s: float, samples: float | None, tokens: float | None) -> None:
        """An optimizer step ended now."""
        end = self._ends.mark(t_s) if self._ends else None
        self._new.append((t_s, samples, tokens, self._wait_s, 1, end))
        self._wait_s = 0.0
        self.marked_s = self._done_s = t_s

    def tell(self, t_s: float, samples: float | None, tokens: float | None) -> None:
        """Counts of steps that did not report them, or only in part.

        ``None`` leaves that count unknown.
        """
        self._new.append((t_s, samples, tokens, 0.0, 0, None))

    def advance(self, until_s: float) -> StepCounts:
        """Count the steps that ended by ``until_s``; returns the tally at the newest of them."""
        if self._ends:
            self._ends.settle()
        before, new = self._tally, self._new
        t_s, t_error_s, count, wait_s = before.t_s, before.t_error_s, before.steps, before.wait_s
        told_samples, untold_samples = before.told_samples, before.untold_samples
        told_tokens, untold_tokens = before.told_tokens, before.untold_tokens
        while new:
            marked_s, samples, tokens, waited_s, steps, end = new[0]
            ended_s = end.end_s if end else marked_s
            if ended_s is None or ended_s > until_s:
                break
            new.popleft()
            # A tensor of one number is a number here, on the writer's thread, and nowhere else.
            if samples is None:
                untold_samples += steps
            else:
                told_samples += float(samples)
                untold_samples = untold_samples if steps else 0
            if tokens is None:
                untold_tokens += steps
            else:
                told_tokens += float(tokens)
                untold_tokens = untold_tokens if steps else 0
            if steps:
                # A step that kept its host mark may lie before one that the device has dated.
                t_s, t_error_s = max(ended_s, t_s), end.error_s if end else None
                count += steps
                wait_s += waited_s
        self._tally = StepCounts(
            t_s=t_s,
            t_error_s=t_error_s,
            steps=count,
            told_samples=told_samples,
            told_tokens=told_tokens,
            untold_samples=untold_samples,
            untold_tokens=untold_tokens,
            wait_s=wait_s,
        )
        return self._tally

    def close(self) -> None:
        """No step will follow; those under way on the device end when they were queued."""
        if self._ends:
            self._ends.close()

    @property
    def host_marks(self) -> tuple[int, int] | None:
        """Steps that no event has dated, and all steps; ``None`` if no event was asked for."""
        return (self._ends.host_marks, self._ends.steps) if self._ends else None


def difference(now: float | None, before: float | None) -> float | None:
    """The difference of two counts; ``None`` if one is unknown."""
    return None if now is None or before is None else now - before
