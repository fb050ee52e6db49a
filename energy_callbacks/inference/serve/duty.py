"""Pauses a tenant for a part of the time, so that the GPU needs less power on average."""

import math
from typing import Final

PERIOD_S: Final = 0.1
"""Time of one pause and the work until the next one, s: a tenth of the windows of 1 s in which
power is compared with a cap, so that a window has about the same work as any other."""
# A batch may begin this part of a period after the end of the pause without a loss of work.
_LATE: Final = 0.1


class DutyGate:
    """Tells when a tenant may begin a batch, so that it works for a given share of time.

    Time gives *credit*: ``duty`` seconds of work for each second. A batch uses its own time. Work
    goes on until the credit is used, and then pauses until the credit suffices for one period. So
    the share is kept over time, also if a batch is longer than a period.

    Args:
        now_s: present time, s.
        offset: position in the period at which the tenant begins, from 0 to 1; tenants with
            different offsets do not pause at the same time.
    """

    def __init__(self, now_s: float, *, offset: float = 0.0) -> None:
        self._offset = offset
        self._duty, self._at_s = 1.0, now_s
        self._credit_s = 0.0
        self._is_open = True

    def set(self, duty: float, now_s: float) -> None:
        """Change the share of time, which must be in (0, 1].

        Raises:
            ValueError: if it is not.
        """
        if not 0.0 < duty <= 1.0:
            raise ValueError(f"duty must be above 0 and at most 1, got {duty:g}")
        if duty == self._duty:
            return
        self._earn(now_s)
        was_free = self._duty == 1.0
        self._duty = duty
        if was_free:  # the first pause ends at the tenant's position in the period
            self._credit_s = self._most_s - duty * self._offset * PERIOD_S
            self._is_open = False
        self._credit_s = min(self._credit_s, self._most_s)

    def opens_s(self, now_s: float, ahead_s: float = 0.0) -> float:
        """Return when the next batch may be sent: ``now_s``, or a later time.

        Args:
            now_s: present time, s.
            ahead_s: expected time of the batches that the tenant has and that have not ended, s.

        Returns:
            The time; infinity if a batch must end before.
        """
        if self._duty == 1.0:
            return now_s
        self._earn(now_s)
        if ahead_s <= 0.0:  # what an idle tenant does not use is lost
            self._credit_s = min(self._credit_s, self._most_s + _LATE * PERIOD_S)
        # Times of 1 ns are rounding errors.
        if self._is_open:
            self._is_open = self._credit_s > 1e-9
        else:
            self._is_open = self._credit_s >= self._most_s - 1e-9
        if not self._is_open:
            return now_s + (self._most_s - self._credit_s) / self._duty
        is_left = self._credit_s > (1.0 - self._duty) * ahead_s
        return now_s if is_left else math.inf

    def use(self, busy_s: float, now_s: float) -> None:
        """Use credit for a batch of ``busy_s`` seconds that has ended."""
        self._earn(now_s)
        self._credit_s -= busy_s

    @property
    def _most_s(self) -> float:
        """Credit at which a pause ends: that of a pause of ``1 - duty`` of a period."""
        return self._duty * (1.0 - self._duty) * PERIOD_S

    def _earn(self, now_s: float) -> None:
        self._credit_s += self._duty * max(now_s - self._at_s, 0.0)
        self._at_s = max(now_s, self._at_s)
