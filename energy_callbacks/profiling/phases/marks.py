"""Which phase of the step began when: told on the training thread, dated by device or host."""

from collections import deque
from typing import Final

import numpy as np

from energy_callbacks.profiling.phases.exposure import Spans
from energy_callbacks.sensing.step_ends import StepEnd, StepEnds

OUTSIDE: Final = ""
"""No phase of a step: validation, a checkpoint, a pause."""
# A phase shorter than this share of all time is told together with the one that follows it.
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
        """A phase begins, and ends the one before; nothing where it goes on."""
        if name == self.name:
            return
        self.name = name
        end = StepEnd(t_s, t_s) if self._ends is None else self._ends.mark(t_s)
        self._marks.append((name, end))

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


def _without_tiny(spans: Spans, names: list[str]) -> tuple[Spans, tuple[str, ...]]:
    times_s = spans.times_s() if names else np.zeros(0)
    groups = [[number] for number in range(len(names))]

    def time_s(group: list[int]) -> float:
        return float(times_s[group].sum())

    while len(groups) > 1 and time_s(least := min(groups, key=time_s)) < _TINY * times_s.sum():
        heir = groups[(groups.index(least) + 1) % len(groups)]
        heir[:0] = least
        groups.remove(least)
    place = np.full(len(names) + 1, -1, dtype=np.intp)  # the last is that of -1
    for number, group in enumerate(groups):
        place[group] = number
    found = Spans(edges_s=spans.edges_s, labels=place[spans.labels], count=len(groups))
    return found, tuple(", ".join(names[number] for number in group) for group in groups)
