"""Keeps the stack of phases of a process, and divides time into spans with one phase each."""

from collections import deque
from collections.abc import Iterable, Iterator
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

    The training thread changes the stack, and the journal's thread takes the spans that have ended.
    No method uses a lock. A signal handler may call any method except ``take`` in the middle of
    another one, because each change of the stack or of the queue is a single operation.

    While a framework's call runs in an attempt of the user, the user's phases below it are held:
    nothing that the framework leaves removes one of them::

        enter("mine")          mine
        hold(call)
        enter("train")         mine, train
        release(call)          mine            (also after an exception)

    Args:
        start_s: monotonic time at which the first phase, ``idle``, begins.

    Attributes:
        names: names of the phases in the stack, from the bottom to the current phase.
        open: name and start of the phase that follows the last span that was taken.
    """

    def __init__(self, start_s: float) -> None:
        self.names = ["idle"]
        self.open = ("idle", start_s)
        self._changes: deque[tuple[str, float]] = deque()
        self._held: dict[object, int] = {}  # by call: number of phases below it; at most one entry

    @property
    def name(self) -> str:
        """Name of the current phase."""
        return self.names[-1]

    def enter(self, name: str, t_s: float) -> None:
        """Put a phase on top of the stack at ``t_s``."""
        self.names.append(name)
        self.end(t_s)

    def leave(self, name: str, t_s: float) -> bool:
        """Remove a phase and all phases above it from the stack at ``t_s``.

        Returns:
            Whether anything has changed; ``False`` if the phase is not in the stack, or only among
            the phases that are held or at the bottom, which cannot be removed.
        """
        names = self.names.copy()
        if name not in names[max(self._held.values(), default=1) :]:
            return False
        del self.names[len(names) - 1 - names[::-1].index(name) :]
        self.end(t_s)
        return True

    def hold(self, call: object) -> bool:
        """Hold all phases in the stack until ``release``.

        If phases are held already, ``call`` takes the place of the call for which they are held.

        Returns:
            Whether no phases were held before.
        """
        held = list(self._held.values())
        self._held = {call: held[0] if held else len(self.names)}
        return not held

    def release(self, call: object, t_s: float) -> bool:
        """Remove all phases above the held ones at ``t_s``, and hold them no longer.

        Any thread may call this method. What another thread enters meanwhile is not removed.

        Returns:
            Whether phases were held for ``call``.
        """
        above = len(self.names)  # read first: ``enter`` may follow a ``release`` by its thread
        held = self._held.pop(call, None)
        if held is None:
            return False
        del self.names[held:above]
        self.end(t_s)
        return True

    def leave_all(self, t_s: float) -> None:
        """Remove all phases except the one at the bottom at ``t_s``."""
        del self.names[1:]
        self.end(t_s)

    def end(self, t_s: float) -> None:
        """End the current span at ``t_s``, and begin a span of the phase on top of the stack."""
        self._changes.append((self.names[-1], t_s))

    def take(self) -> Iterator[PhaseSpan]:
        """Yield the spans that have ended since the last call, in time order without gaps.

        A span that would end before it begins has the length 0. ``open`` changes after the caller
        has stored the span: a thread that reads ``open`` before the stored spans misses no time.
        """
        while self._changes:
            next_name, t_s = self._changes.popleft()
            name, start_s = self.open
            span = PhaseSpan(name=name, start_s=start_s, end_s=max(t_s, start_s))
            yield span
            self.open = (next_name, span.end_s)
