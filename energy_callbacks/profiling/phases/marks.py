"""Records the beginning of each phase of a step as a mark, and converts the marks to spans.

Marks are made on the training thread. Their times are given by events of the device or by the
host's clock.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from energy_callbacks.profiling.phases.exposure import Numbers, Spans
from energy_callbacks.sensing.frameworks.work_ends import WorkEnd, WorkEnds

OUTSIDE: Final = ""
"""Name for time outside all phases of a step, such as a validation, a checkpoint or a pause."""
# A phase with less than this share of the time of all phases is merged with the next phase.
_TINY: Final = 0.02
# Maximum number of marks. With six marks per step, this is enough for almost two hours with steps
# of 100 ms, or for almost half a minute with steps of 0.4 ms.
_MOST: Final = 400_000


class PhaseMarks:
    """The start times of phases, in time order.

    Args:
        ends: determines the times of marks by events of the device, or by the host's clock.

    Attributes:
        ends: as above.
        name: name of the active phase; ``OUTSIDE`` if no phase is active.
    """

    def __init__(self, ends: WorkEnds) -> None:
        self.ends = ends
        self._marks: deque[tuple[str, WorkEnd]] = deque(maxlen=_MOST)
        self.name = OUTSIDE

    def begin(self, name: str, t_s: float) -> None:
        """Begin a phase and end the previous one; do nothing if the phase is already active."""
        if name == self.name:
            return
        self.name = name
        self._marks.append((name, self.ends.mark(t_s)))

    @property
    def is_full(self) -> bool:
        """Whether the marks of the next step could displace the oldest marks."""
        return len(self._marks) >= _MOST - 16

    @property
    def by_device(self) -> bool:
        """Whether the times of more than 98 % of the marks are from events of the device."""
        return self.ends.host_marks < 0.02 * self.ends.marked

    def spans(self) -> tuple[Spans, tuple[str, ...]]:
        """Return the spans between marks, and the names of the phases in the order of a step.

        A phase with less than 2 % of the time of all phases is merged with the phase that follows
        it; the name of the merged phase lists both names.
        """
        # The host makes a mark before the device reaches it, so times by the host's clock are too
        # early. If nearly all times are from events of the device, the other marks are left out.
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
            labels, names = merged(spans.labels, names, int(times_s.argmin()))
            spans = replace(spans, labels=labels, count=len(names))
        return spans, names


def merged(labels: Numbers, names: Sequence[str], phase: int) -> tuple[Numbers, tuple[str, ...]]:
    """Return labels and names with a phase merged into the next phase of the step.

    The phase after the last one is the first one.

    Args:
        labels: indices into ``names``; -1 is kept.
        names: names of the phases in the order of a step.
        phase: index of the phase that is merged.
    """
    target = (phase + 1) % len(names)
    new_names = list(names)
    new_names[target] = f"{names[phase]}, {names[target]}"
    del new_names[phase]
    new_labels = np.where(labels == phase, target, labels)
    return new_labels - (new_labels > phase), tuple(new_names)
