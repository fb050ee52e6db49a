"""Computes the energy that the devices used while the training thread waited for data.

An interval between two readings can contain waiting time and other time. Readings give the energy
of the whole interval, but not how much of it the device used while waiting. The estimate assumes
constant power during the interval. The load changes in the same way at every wait, so the errors of
the estimates have the same sign and do not average out. The error of each interval is bounded, and
the bounds of all intervals are added::

    E, w      energy and length of the interval
    x         waiting time in the interval
    P         highest power that the device may draw (``_Sum._most_w``)
    estimate  E x / w
    limits    E - P (w - x)  to  P x, within 0 to E     the true energy lies between them
    bound     largest of: estimate - lower limit, upper limit - estimate, 1.96 sqrt(edge_j2)

``edge_j2`` is explained in ``cumulative_energy.Intervals``. The bound is 0 if the whole interval is
waiting time (``x = w``), as inside a long wait, or if no part of it is (``x = 0``). The sum of the
bounds is ``edge_j`` of the energy.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from energy_callbacks.accounting.journal import journal
from energy_callbacks.accounting.journal.journal import Record
from energy_callbacks.accounting.metrics.step_counts import StepLog
from energy_callbacks.core.records import NORMAL_95, Device, Energy
from energy_callbacks.sensing.estimation.cumulative_energy import METHODS, Intervals
from energy_callbacks.sensing.estimation.series import Array
from energy_callbacks.sensing.timeline import Timeline

# Highest power as a multiple of the power limit. A GPU may briefly exceed its limit: an H200 with a
# limit of 700 W was measured at 940 W for 60 to 80 ms.
_BURST: Final = 1.4
# If no power limit is known, the highest power is assumed to be at most this multiple of the
# largest mean power of all intervals so far. The assumption is true if the device drew its highest
# power for at least half of one interval.
_HIDDEN_PEAK: Final = 2.0
# Intervals shorter than this share of the median interval are too short to compute a mean power.
_WHOLE: Final = 0.5
# Maximum time for which waits are kept while the readings of a source are missing, s. If these
# readings arrive later, the energy of the waits that are no longer kept is not counted.
_KEPT_S: Final = 120.0


@dataclass(slots=True)
class _Sum:
    """Running sum of the energy of one device during waits.

    Attributes:
        until_s: monotonic time up to which intervals have been added.
        limit_w: power limit of the device, W; ``None`` if unknown.
        unused_s: waiting time before the run used the device, s.
        energy_j: energy during waits, J.
        noise_j2: variance of ``energy_j``, J squared.
        edge_j: sum of the bounds of all intervals, J; see the docstring of this module. The
            systematic error of the sensor is not part of it.
        seen_s: waiting time that is covered by readings, s.
        highest_w: highest mean power of an interval so far, W.
        relative_error: bound of the sensor's systematic error, as a fraction of the energy.
        method: index in ``METHODS`` of the least accurate method of measurement so far.
    """

    until_s: float
    limit_w: float | None
    unused_s: float = 0.0
    energy_j: float = 0.0
    noise_j2: float = 0.0
    edge_j: float = 0.0
    seen_s: float = 0.0
    highest_w: float = 0.0
    relative_error: float = 0.0
    method: int = 0

    def add(self, found: Intervals, waited_s: Array) -> None:
        """Add intervals between readings.

        Args:
            found: n intervals.
            waited_s: waiting time in each interval, s, shape (n,).
        """
        width_s = np.diff(found.t_s)
        whole = (found.seen_s > 0.0) & (width_s >= _WHOLE * _median(width_s))
        if whole.any():
            highest_w = float((found.energy_j[whole] / found.seen_s[whole]).max())
            self.highest_w = max(self.highest_w, highest_w)
        self.until_s = float(found.t_s[-1])
        touched = waited_s > 0.0
        if not touched.any():
            return
        waited_s, width_s = waited_s[touched], width_s[touched]
        energy_j, share = found.energy_j[touched], waited_s / width_s
        self.energy_j += float((energy_j * share).sum())
        self.noise_j2 += float((found.noise_j2[touched] * share**2).sum())
        self.seen_s += float((found.seen_s[touched] * share).sum())
        least_j = NORMAL_95 * np.sqrt(found.edge_j2[touched])
        self.edge_j += float(_edge_j(energy_j, waited_s, width_s, self._most_w, least_j).sum())
        self.relative_error = found.relative_error
        self.method = max(self.method, METHODS.index(found.method))

    @property
    def _most_w(self) -> float:
        if self.limit_w is None:
            return _HIDDEN_PEAK * self.highest_w
        return max(_BURST * self.limit_w, self.highest_w)

    def as_energy(self, waited_s: float) -> Energy:
        """Return the energy of all waits.

        Args:
            waited_s: total duration of the waits, s.
        """
        if waited_s <= self.unused_s:
            return Energy(energy_j=0.0, coverage=1.0)
        if self.seen_s <= 0.0:
            return Energy(energy_j=None)
        return Energy(
            energy_j=self.energy_j,
            stderr_j=float(np.sqrt(max(self.noise_j2, 0.0))),
            edge_j=self.edge_j,
            systematic_j=self.relative_error * abs(self.energy_j),
            method=METHODS[self.method],
            coverage=min(self.seen_s / (waited_s - self.unused_s), 1.0),
        )


def _median(values: Array) -> float:
    """Return the median, as ``np.median`` does.

    ``np.median`` imports a module when it is first called. On the journal's thread, that is not
    safe: a data loader may fork a worker at any time.
    """
    middle = (len(values) - 1) // 2
    return float(np.sort(values)[middle : len(values) // 2 + 1].mean())


def _edge_j(
    energy_j: Array, waited_s: Array, width_s: Array, most_w: float, least_j: Array
) -> Array:
    """Return the bound of each of n intervals, J, (n,), as defined in the module's docstring."""
    found_j = energy_j * waited_s / width_s
    high_j = np.minimum(energy_j, most_w * waited_s)
    low_j = np.maximum(energy_j - most_w * (width_s - waited_s), 0.0)
    bound_j = np.maximum(np.maximum(high_j - found_j, found_j - low_j), least_j)
    is_part = (width_s - waited_s) > 1e-9 * width_s
    return np.where(is_part, bound_j, 0.0)


class _Ends:
    """Starts and ends of waits, and the total waiting time up to each of them.

    Args:
        waits: start and end of each wait, (n, 2).
    """

    def __init__(self, waits: Array) -> None:
        self._t_s = np.append(0.0, waits)
        self._waited_s = np.zeros(len(self._t_s))
        self._waited_s[2::2] = np.cumsum(waits[:, 1] - waits[:, 0])
        self._waited_s[3::2] = self._waited_s[2:-1:2]

    def waited_s(self, t_s: Array) -> Array:
        """Return the total waiting time up to each moment, s, shape (n,)."""
        found: Array = np.interp(t_s, self._t_s, self._waited_s)
        return found


class DataWaitEnergy:
    """Sums the energy of each device during the waits for data; runs on the journal's thread.

    Args:
        timeline: provides the energy between readings; queried once per device and update.
        steps: log of steps; it also records the waits for data.
        start_s: monotonic time of the attempt's start.
    """

    def __init__(self, timeline: Timeline, steps: StepLog, start_s: float) -> None:
        self._timeline = timeline
        self._steps = steps
        self._start_s = start_s
        self._sums: dict[str, _Sum] = {}
        self._waits = np.empty((0, 2))
        self._waited_s = 0.0

    def update(self, now_s: float, *, is_final: bool = False) -> None:
        """Add the waits and readings since the last call.

        Args:
            now_s: monotonic time.
            is_final: whether the attempt ends, so that no more waits will follow.
        """
        new, known_s = self._steps.take_waits(now_s)
        if not self._steps.sees_waits:
            return
        known_s = now_s if is_final else known_s
        self._waits = np.concatenate([self._waits, new])
        self._waited_s += float((new[:, 1] - new[:, 0]).sum())
        ends = _Ends(self._waits)
        metered = self._timeline.metered
        for device in self._timeline.devices:
            if device.key in metered:
                so_far = self._sums.get(device.key) or self._new_sum(device, ends)
                found = self._timeline.intervals(device.key, so_far.until_s, known_s)
                if found is not None:
                    so_far.add(found, np.diff(ends.waited_s(found.t_s)))
        reached_s = min((total.until_s for total in self._sums.values()), default=known_s)
        is_needed = self._waits[:, 1] > max(reached_s, known_s - _KEPT_S)
        self._waits = self._waits[is_needed]

    def _new_sum(self, device: Device, ends: "_Ends") -> _Sum:
        used_s = max(self._timeline.used_since_s(device.key), self._start_s)
        since_s = np.diff(ends.waited_s(np.array([used_s, math.inf])))
        unused_s = self._waited_s - float(since_s[0]) if used_s > self._start_s else 0.0
        new = self._sums[device.key] = _Sum(self._start_s, device.limit_w, unused_s)
        return new

    def record(self) -> Record:
        """Return fields for a line of the journal; empty if waits are not measured."""
        if not self._steps.sees_waits:
            return {}
        energies = {key: total.as_energy(self._waited_s) for key, total in self._sums.items()}
        as_json = journal.energies_as_json(energies)
        return {"data_wait": {"duration_s": self._waited_s, "energy": as_json}}
