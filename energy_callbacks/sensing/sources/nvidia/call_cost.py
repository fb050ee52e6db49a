"""Determines how long a call of the driver takes, from the durations of calls."""

from collections import deque
from statistics import median
from typing import Final

# Calls that take longer than this, s, are expensive. On an H200 the fastest call of the energy
# counter takes 2.3 ms, because the card's firmware answers it. Calls that the driver answers itself
# take 1 to 30 us on the same card.
_EXPENSIVE_S: Final = 0.001
# Number of calls of which the median is the first estimate.
_FIRST_CALLS: Final = 9
# Number of newest calls that are considered afterwards.
_RECENT_CALLS: Final = 32


class CallCost:
    """The cost of a call, s, and whether it is cheap.

    The first estimate is the median of the first calls, which usually precede the training. A
    Python thread of the training can delay the end of later calls by milliseconds, because a call
    ends only when it gets the interpreter's lock. Therefore later calls change the estimate only
    if all recent calls are expensive.

    Attributes:
        cost_s: the estimate; ``None`` before there are enough calls.
    """

    def __init__(self) -> None:
        self._first: list[float] = []
        self._recent: deque[float] = deque(maxlen=_RECENT_CALLS)
        self.cost_s: float | None = None

    def add(self, call_s: float) -> None:
        """Add the duration of a call, s."""
        if self.cost_s is None:
            self._first.append(call_s)
            if len(self._first) == _FIRST_CALLS:
                self.cost_s = median(self._first)
            return
        self._recent.append(call_s)
        if len(self._recent) == _RECENT_CALLS:
            self.cost_s = max(self.cost_s, min(self._recent))

    @property
    def is_cheap(self) -> bool:
        """Whether calls are known to be cheap."""
        return self.cost_s is not None and self.cost_s <= _EXPENSIVE_S
