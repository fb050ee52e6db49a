"""The stack of phases that a process is in, cut into spans without gaps."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseSpan:
    """A phase from one moment to another."""

    name: str
    start_s: float
    end_s: float


def without(spans: Iterable[PhaseSpan], holes: Iterable[PhaseSpan]) -> tuple[PhaseSpan, ...]:
    """Spans without the parts that other spans cover.

    >>> a = PhaseSpan(name="train", start_s=0.0, end_s=9.0)
    >>> b = PhaseSpan(name="x", start_s=2.0, end_s=3.0)
    >>> [(span.start_s, span.end_s) for span in without([a], [b])]
    [(0.0, 2.0), (3.0, 9.0)]
    """
    left = list(spans)
    for hole in holes:
        left = [part for span in left for part in _around(span, hole)]
    return tuple(left)


def _around(span: PhaseSpan, hole: PhaseSpan) -> list[PhaseSpan]:
    if hole.end_s <= span.start_s or hole.start_s >= span.end_s:
        return [span]
    ends = ((span.start_s, hole.start_s), (hole.end_s, span.end_s))
    return [PhaseSpan(name=span.name, start_s=a, end_s=b) for a, b in ends if b > a]


class PhaseStack:
    """The phase on top of the stack is the phase the process is in.

    ::

        enter("train")         train
        enter("validation")    validation      (train is paused, not counted twice)
        leave()                train

    Args:
        start_s: when the first phase begins.
        name: the phase below all others.
    """

    def __init__(self, start_s: float, name: str = "idle") -> None:
        self._stack = [name]
        self._start_s = start_s

    @property
    def name(self) -> str:
        """The phase that the process is in."""
        return self._stack[-1]

    @property
    def start_s(self) -> float:
        """Since when it is in this phase."""
        return self._start_s

    def is_in(self, name: str) -> bool:
        """Whether a phase is anywhere on the stack."""
        return name in self._stack

    def enter(self, name: str, t_s: float) -> PhaseSpan:
        """Put a phase on top; returns the span of the one before."""
        span = self._cut(t_s)
        self._stack.append(name)
        return span

    def leave(self, name: str, t_s: float) -> PhaseSpan | None:
        """Take a phase off, with all that was left open above it; ``None`` if it is not there."""
        if name not in self._stack[1:]:
            return None
        span = self._cut(t_s)
        while self._stack.pop() != name:
            pass
        return span

    def leave_all(self, t_s: float) -> PhaseSpan:
        """Back to the phase below all others."""
        span = self._cut(t_s)
        del self._stack[1:]
        return span

    def end(self, t_s: float) -> PhaseSpan:
        """The last span."""
        return self._cut(t_s)

    def _cut(self, t_s: float) -> PhaseSpan:
        t_s = max(t_s, self._start_s)
        span = PhaseSpan(name=self.name, start_s=self._start_s, end_s=t_s)
        self._start_s = t_s
        return span
