"""Optimizer steps with their samples, tokens and waits: marked at once, pooled later."""

from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Step:
    """One optimizer step as the training thread has seen it."""

    t_s: float
    samples: float | None
    tokens: float | None
    wait_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Everything up to and with one optimizer step. Counts are since the start of the attempt.

    Attributes:
        t_s: when that step ended.
        steps: optimizer steps.
        samples: ``None`` as soon as one step did not say.
        tokens: likewise.
        wait_s: time between the end of one batch and the data of the next being ready.
    """

    t_s: float
    steps: int = 0
    samples: float | None = 0.0
    tokens: float | None = 0.0
    wait_s: float = 0.0


class StepLog:
    """Steps go in on the training thread, tallies come out on the writer's.

    ::

        mark_ready   data of a batch is there      wait = since the last batch was done
        mark_done    a batch is done               (a micro-batch, or the pause of a phase)
        step         ... and an optimizer step too

    Args:
        start_s: start of the attempt.
    """

    def __init__(self, start_s: float) -> None:
        self._new: deque[Step] = deque()
        self._done_s: float | None = None
        self._wait_s = 0.0
        self._sees_waits = False
        self._tally = Tally(t_s=start_s)

    @property
    def sees_waits(self) -> bool:
        """Whether anybody marks that data is ready."""
        return self._sees_waits

    @property
    def tally(self) -> Tally:
        """Everything that ``advance`` has counted so far."""
        return self._tally

    def mark_ready(self, t_s: float) -> None:
        """The data of a batch is there."""
        self._sees_waits = True
        if self._done_s is not None:
            self._wait_s += max(t_s - self._done_s, 0.0)
            self._done_s = None

    def mark_done(self, t_s: float) -> None:
        """A batch is done: from now on the loop waits for data."""
        self._done_s = t_s

    def pause(self) -> None:
        """Another phase begins: what follows is no wait for data."""
        self._done_s = None

    def step(self, t_s: float, samples: float | None, tokens: float | None) -> None:
        """An optimizer step ended now."""
        self._new.append(Step(t_s, samples, tokens, self._wait_s))
        self._wait_s = 0.0
        self._done_s = t_s

    def advance(self, until_s: float) -> Tally:
        """Count the steps that ended by ``until_s``; returns the tally at the newest of them."""
        t_s, steps = self._tally.t_s, self._tally.steps
        samples, tokens, wait_s = self._tally.samples, self._tally.tokens, self._tally.wait_s
        while self._new and self._new[0].t_s <= until_s:
            step = self._new.popleft()
            t_s, steps, wait_s = step.t_s, steps + 1, wait_s + step.wait_s
            samples = _sum(samples, step.samples)
            tokens = _sum(tokens, step.tokens)
        self._tally = Tally(t_s=t_s, steps=steps, samples=samples, tokens=tokens, wait_s=wait_s)
        return self._tally


def _sum(total: float | None, more: float | None) -> float | None:
    # A tensor of one number is a number here, on the writer's thread, and nowhere else.
    return None if total is None or more is None else total + float(more)


def difference(now: float | None, before: float | None) -> float | None:
    """What was counted between two tallies; ``None`` where one of them does not know."""
    return None if now is None or before is None else now - before
