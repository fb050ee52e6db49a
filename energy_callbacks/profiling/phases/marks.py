"""Records when each phase of the step begins, and turns these marks into spans.

Marks are made on the training thread and dated by events of the device or by the host's clock.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

import numpy as np

from energy_callbacks.profiling.phases.exposure import Spans
from energy_callbacks.sensing.frameworks.step_ends import StepEnd, StepEnds

OUTSIDE: Final = ""
"""Time outside all phases of a step: validation, a checkpoint, a pause."""
# A phase with less than this share of the time is merged with the next one.
_TINY: Final = 0.02
# Two hours of five phases in steps of 100 ms, or half a minute of a launch-bound loop.
_MOST: Final = 400_000


class PhaseMarks:
    """The begins of phases, in time order.

    Args:
        ends: dates marks by events of the device, or by the host's clock.

    Attributes:
        name: the phase that is active.
    """

    def __init__(self, ends: StepEnds) -> None:
        self._ends = ends
        self._marks: deque[tuple[str, StepEnd]] = deque(maxlen=_MOST)
        self.name = OUTSIDE

    def begin(self, name: str, t_s: float) -> None:
        """Begin a phase, which ends the previous one; does nothing if the phase is active."""
        if name == self.name:
            return
        self.name = name
        self._marks.append((name, self._ends.mark(t_s)))

    @property
    def is_full(self) -> bool:
        """Whether more marks would discard the first ones."""
        return len(self._marks) >= _MOST - 16

    def settle(self) -> None:
        """Date the marks that the device has passed; callable on any thread."""
        self._ends.settle()

    def close(self) -> None:
        """Date the remaining marks as far as possible, and free the events."""
        self._ends.close()

    @property
    def by_device(self) -> bool:
        """Whether events of the device have dated nearly all marks."""
        return self._ends.host_marks < 0.02 * self._ends.steps

    def spans(self) -> tuple[Spans, tuple[str, ...]]:
        """Return the spans between marks, and the names of the phases in the order of a step.

        Tiny phases are merged with the phase that follows; its name then lists both.
        """
        # The host's clock is wrong by as much as the host runs ahead of the device: where events
        # date marks, marks without an event are left out.
        by_device = self.by_device
        dated = [
            (name, end.end_s)
            for name, end in self._marks
            if end.end_s is not None and (end.error_s is not None or not by_device)
        ]
        edges_s = np.maximum.accumulate(np.array([t_s for _, t_s in dated] or [0.0]))
        labelled = [name for name, _ in dated[:-1]]
        names = tuple(dict.fromkeys(name for name in labelled if name))
        numbers = {name: number for number, name in enumerate(names)} | {OUTSIDE: -1}
        labels = np.array([numbers[name] for name in labelled], dtype=np.intp)
        spans = Spans(edges_s=edges_s, labels=labels, count=len(names))
        while len(names) > 1 and (times_s := spans.times_s()).min() < _TINY * times_s.sum():
            spans, names = merged(spans, names, int(times_s.argmin()))
        return spans, names


def merged(spans: Spans, names: Sequence[str], phase: int) -> tuple[Spans, tuple[str, ...]]:
    """Merge a phase into the phase that follows it in a step."""
    target = (phase + 1) % len(names)
    new_names = list(names)
    new_names[target] = f"{names[phase]}, {names[target]}"
    del new_names[phase]
    labels = np.where(spans.labels == phase, target, spans.labels)
    labels -= labels > phase
    return Spans(edges_s=spans.edges_s, labels=labels, count=len(new_names)), tuple(new_names)
