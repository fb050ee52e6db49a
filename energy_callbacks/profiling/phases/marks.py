"""When each phase of the step began: noted on the training thread, dated by device or host."""

from collections import deque
from collections.abc import Sequence
from typing import Final

import numpy as np

from energy_callbacks.profiling.phases.exposure import Spans
from energy_callbacks.sensing.frameworks.step_ends import StepEnd, StepEnds

OUTSIDE: Final = ""
"""No phase of a step: validation, a checkpoint, a pause."""
# A phase shorter than this share of all time is reported together with the next one.
_TINY: Final = 0.02
# Two hours of five phases at 100 ms, or half a minute of a launch-bound loop.
_MOST: Final = 400_000


class PhaseMarks:
    """Begins of phases, in order.

    Args:
        ends: dates them by events of the device; ``None``: a phase begins when the host says so.
    """

    def __init__(self, ends: StepEnds | None) -> None:
        self._ends = ends
        self._marks: deque[tuple[str, StepEnd]] = deque(maxlen=_MOST)
        self.name = OUTSIDE

    def begin(self, name: str, t_s: float) -> None:
        """A phase begins, and ends the one before; nothing if it goes on."""
        if name == self.name:
            return
        self.name = name
        end = StepEnd(t_s, t_s) if self._ends is None else self._ends.mark(t_s)
        self._marks.append((name, end))

    @property
    def is_full(self) -> bool:
        """Whether the next mark would push out the first."""
        return len(self._marks) >= _MOST - 16

    def settle(self) -> None:
        """Date what the device has passed; on any thread."""
        if self._ends is not None:
            self._ends.settle()

    def close(self) -> None:
        """No more marks: date what can be dated."""
        if self._ends is not None:
            self._ends.close()

    @property
    def by_device(self) -> bool:
        """Whether events of the device have dated nearly all."""
        ends = self._ends
        return ends is not None and ends.steps > 0 and ends.host_marks < 0.02 * ends.steps

    def spans(self) -> tuple[Spans, tuple[str, ...]]:
        """All that was marked, and the names of the phases in the order of a step.

        Phases that are tiny are part of the one that follows them, and so is its name.
        """
        # Beside events a host's mark is wrong by as much as the host runs ahead: it is left out.
        by_device = self.by_device
        dated = [
            (name, end.end_s)
            for name, end in self._marks
            if end.end_s is not None and (end.error_s is not None or not by_device)
        ]
        edges_s = np.maximum.accumulate(np.array([t_s for _, t_s in dated] or [0.0]))
        labelled = [name for name, _ in dated[:-1]]
        names = list(dict.fromkeys(name for name in labelled if name))
        numbers = {name: number for number, name in enumerate(names)} | {OUTSIDE: -1}
        labels = np.array([numbers[name] for name in labelled], dtype=np.intp)
        spans = Spans(edges_s=edges_s, labels=labels, count=len(names))
        return _without_tiny(spans, names)


def _without_tiny(spans: Spans, names: Sequence[str]) -> tuple[Spans, tuple[str, ...]]:
    times_s = spans.times_s() if names else np.zeros(0)
    least = int(times_s.argmin()) if len(names) > 1 else 0
    if len(names) < 2 or times_s[least] >= _TINY * times_s.sum():
        return spans, tuple(names)
    return _without_tiny(*joined(spans, names, least))


def joined(spans: Spans, names: Sequence[str], phase: int) -> tuple[Spans, tuple[str, ...]]:
    """The same with one phase merged into the one that follows it in a step."""
    heir = (phase + 1) % len(names)
    place = np.arange(len(names) + 1)
    place[phase] = heir
    place[place > phase] -= 1
    place[-1] = -1  # of what is outside
    told = list(names)
    told[heir] = f"{names[phase]}, {names[heir]}"
    del told[phase]
    found = Spans(edges_s=spans.edges_s, labels=place[spans.labels], count=len(told))
    return found, tuple(told)
