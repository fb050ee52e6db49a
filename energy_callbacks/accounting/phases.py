"""Keeps the stack of phases of a process, and divides time into spans with one phase each."""

from collections.abc import Iterable
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseSpan:
    """A span of time in the phase ``name``, from ``start_s`` to ``end_s`` in monotonic time."""

    name: str
    start_s: float
    end_s: float


def joined(spans: Iterable[PhaseSpan]) -> tuple[PhaseSpan, ...]:
    """Return spans of one phase, in time order; neighbours that share an edge become one span.

    >>> bounds = [(0.0, 2.0), (2.0, 3.0), (4.0, 5.0)]
    >>> spans = [PhaseSpan(name="train", start_s=start_s, end_s=end_s) for start_s, end_s in bounds]
    >>> [(span.start_s, span.end_s) for span in joined(spans)]
    [(0.0, 3.0), (4.0, 5.0)]
    """
    found: list[PhaseSpan] = []
    for span in spans:
        if found and found[-1].end_s == span.start_s:
            found[-1] = replace(found[-1], end_s=span.end_s)
        else:
            found.append(span)
    return tuple(found)


def without(spans: Iterable[PhaseSpan], holes: Iterable[PhaseSpan]) -> tuple[PhaseSpan, ...]:
    """Return ``spans`` without the parts that lie inside ``holes``.

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
    """The stack of phases of a process; the phase on top is the current one.

    ::

        enter("train")         train
        enter("validation")    validation      (train is paused)
        leave("validation")    train

    Args:
        start_s: monotonic time at which the first phase begins.
        name: name of the phase at the bottom of the stack.

    Attributes:
        names: names of the phases in the stack, from the bottom to the current phase.
        start_s: monotonic time at which the current span began.
    """

    def __init__(self, start_s: float, name: str = "idle") -> None:
        self.names = [name]
        self.start_s = start_s

    @property
    def name(self) -> str:
        """Name of the current phase."""
        return self.names[-1]

    def enter(self, name: str, t_s: float) -> PhaseSpan:
        """Put a phase on top of the stack; return the span that ends at ``t_s``."""
        span = self.end(t_s)
        self.names.append(name)
        return span

    def leave(self, name: str, t_s: float) -> PhaseSpan | None:
        """Remove a phase and all phases above it from the stack.

        Returns:
            The span that ends at ``t_s``; ``None`` if the phase is not in the stack, or only at
            the bottom, which cannot be removed.
        """
        if name not in self.names[1:]:
            return None
        span = self.end(t_s)
        while self.names.pop() != name:
            pass
        return span

    def leave_all(self, t_s: float) -> PhaseSpan:
        """Remove all phases except the one at the bottom; return the span that ends at ``t_s``."""
        span = self.end(t_s)
        del self.names[1:]
        return span

    def end(self, t_s: float) -> PhaseSpan:
        """End the current span at ``t_s`` and begin a new one; return the ended span.

        If ``t_s`` is earlier than the start of the current span, the ended span has the length 0.
        """
        t_s = max(t_s, self.start_s)
        span = PhaseSpan(name=self.name, start_s=self.start_s, end_s=t_s)
        self.start_s = t_s
        return span
