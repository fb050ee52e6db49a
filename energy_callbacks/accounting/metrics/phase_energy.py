"""Computes the energy of each phase of an attempt, over all its spans.

The sum of the energies of the spans would be wrong if spans are short: see ``phase_fit``, which is
used instead. It needs the phase of every moment shortly after that moment, so the energies follow
the readings by ``_HOLD_S``, in which a window may still give a part of a span another phase.
"""

import copy
import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from energy_callbacks.accounting.device_edges import DeviceEdges
from energy_callbacks.accounting.phases import PhaseSpan
from energy_callbacks.core.records import Energy, Method
from energy_callbacks.core.yielding import yield_if_due
from energy_callbacks.sensing.estimation.cumulative_energy import METHODS, Intervals
from energy_callbacks.sensing.estimation.series import Array
from energy_callbacks.sensing.repeated_phases.phase_fit import PhaseEnergies, phase_energies
from energy_callbacks.sensing.repeated_phases.phase_sums import Edges, PhaseSums, Stretch
from energy_callbacks.sensing.timeline import Timeline

# Time until the phase of a moment is taken as final, s. Windows are known when they end; a window
# that is longer, such as the writing of a large checkpoint, is not seen (``is_complete``).
_HOLD_S: Final = 60.0
# Intervals of at least this time are added at once, s: each addition takes time.
_EVERY_S: Final = 3.0
# Intervals older than this are not used, s. The timeline thins intervals after 600 s, and one
# device may be 60 s behind the others (``Timeline.complete_s``).
_OLDEST_S: Final = 500.0
# Most phases: the size of the sums grows with the square of their number.
_MOST_PHASES: Final = 8
# Most intervals that are added at once. NumPy's linear algebra computes larger products on all
# cores, which would disturb the training: above 65536 * 4 multiplications (OpenBLAS,
# interface/gemm.c: SMP_THRESHOLD_MIN * GEMM_MULTITHREAD_THRESHOLD), for at most 99 delays.
_BATCH: Final = 26
# A phase with less time in all intervals has no readings: the time is the rounding of a sum, s.
_SHORTEST_S: Final = 1e-9


@dataclass(slots=True)
class _Device:
    """Sums of one device.

    Attributes:
        sums: sums over its intervals.
        done_s: end of the last interval in the sums.
        missing_s: time without readings in each phase.
        noise_j2: variance of the energies of intervals in each phase, if the counter has measured
            the intervals, and if power readings have.
        method: the least accurate method of all intervals.
        relative_error: bound of the systematic error, as a fraction of the energy.
        is_counted: whether it has an energy counter.
        is_complete: whether the phases of all its intervals were known; ``False`` if readings came
            too late.
        follows: whether its edges are those that ``DeviceEdges`` has measured.
    """

    sums: PhaseSums
    done_s: float
    missing_s: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    noise_j2: dict[tuple[int, bool], float] = field(default_factory=lambda: defaultdict(float))
    method: Method = METHODS[0]
    relative_error: float = 0.0
    is_counted: bool = False
    is_complete: bool = True
    follows: bool = False


class PhaseEnergy:
    """Computes the energy of each device in each phase.

    Args:
        timeline: provides the intervals of the energy curves.
        device_edges: delays of a GPU behind the host; ``None`` if they are not measured.

    Attributes:
        is_complete: whether every moment was assigned to its phase; ``False`` after a window that
            was known too late, or with too many phases. There are no energies then.
    """

    def __init__(self, timeline: Timeline, device_edges: DeviceEdges | None = None) -> None:
        self._timeline = timeline
        self._device_edges = device_edges
        self._names: list[str] = []
        self._start_s: float | None = None
        self._edges_s: list[float] = []
        self._labels: list[int] = []
        # The same edges on the GPU, where they were measured, and their delays (NaN: not measured).
        self._gpu_edges_s: list[float] = []
        self._delays_s = np.empty(0)
        self._end_s = 0.0
        self._known_s = -math.inf  # edges before this are forgotten
        self._added_s = -math.inf
        self._devices: dict[str, _Device] = {}
        self.is_complete = True

    def add(self, span: PhaseSpan) -> None:
        """Add the next span, which begins where the previous one ended."""
        if self._start_s is None:
            self._start_s = self._end_s = span.start_s
        if span.end_s > span.start_s:
            self._append(self._end_s, span.name)
            self._end_s = span.end_s

    def begin(self, name: str, t_s: float) -> None:
        """Record the phase that began when the last span ended, at ``t_s``."""
        if self._start_s is None:
            self._start_s = self._end_s = t_s
        self._append(t_s, name)

    def rename(self, window: PhaseSpan) -> None:
        """Give a part of the time so far another phase; ``begin`` must have been called before."""
        start_s, end_s = max(window.start_s, self._start_s or 0.0), window.end_s
        if any(device.done_s > start_s for device in self._devices.values()):
            self.give_up()
        first, last = bisect_left(self._edges_s, start_s), bisect_right(self._edges_s, end_s)
        if start_s < end_s and last:
            after = self._labels[last - 1]
            self._edges_s[first:last] = [start_s, end_s]
            self._labels[first:last] = [self._label(window.name), after]

    def give_up(self) -> None:
        """Drop everything: there will be no energies."""
        self.is_complete = False
        self._devices.clear()
        self._edges_s.clear()
        self._labels.clear()

    def _append(self, t_s: float, name: str) -> None:
        if not self.is_complete:
            return
        label = self._label(name)
        if self._edges_s and t_s <= self._edges_s[-1]:  # a phase of length 0, or a window
            self._labels[-1] = label
        elif not self._labels or self._labels[-1] != label:
            self._edges_s.append(t_s)
            self._labels.append(label)

    def _label(self, name: str) -> int:
        if name not in self._names:
            self._names.append(name)
        return self._names.index(name)

    def update(self, until_s: float, *, is_final: bool = False) -> None:
        """Add the intervals that end at least ``_HOLD_S`` before ``until_s``.

        Args:
            until_s: time up to which energies are final and all phases are known.
            is_final: whether to add all intervals up to ``until_s``.
        """
        if len(self._names) > _MOST_PHASES:
            self.give_up()
        end_s = until_s if is_final else until_s - _HOLD_S
        is_due = is_final or end_s >= self._added_s + _EVERY_S
        if self._start_s is None or not self.is_complete or not is_due or end_s <= self._start_s:
            return
        self._added_s = end_s
        while is_final and len(self._edges_s) > 1 and self._edges_s[-1] >= until_s:
            del self._edges_s[-1], self._labels[-1]  # a phase that begins at the end
        self._follow()
        self._forget(until_s)
        for key in self._timeline.metered:
            device = self._devices.get(key)
            if device is None:
                sums = PhaseSums(self._timeline.shape(key))
                device = self._devices[key] = _Device(sums, self._start_s)
            device.follows = self._follows(key)
            # At the end, an interval that reaches beyond it is divided.
            last_s = math.inf if is_final else end_s
            intervals = self._timeline.intervals(key, device.done_s, last_s)
            if intervals is not None and intervals.t_s[0] < end_s:
                self._add(device, self._within(key, intervals, end_s))

    def _follow(self) -> None:
        """Compute the edges on the GPU; those that it has not reached yet are infinite."""
        edges_s = np.array(self._edges_s)
        self._delays_s = np.full(len(edges_s), math.nan)
        if self._device_edges is not None:
            for place, t_s in enumerate(self._edges_s):
                yield_if_due()
                self._delays_s[place] = self._device_edges.delay_s(t_s)
        late_s = np.where(np.isnan(self._delays_s), 0.0, self._delays_s)
        self._gpu_edges_s = np.maximum.accumulate(edges_s + late_s).tolist()

    def _follows(self, key: str) -> bool:
        device = self._timeline.channels(key)[0].device
        return self._device_edges is not None and self._device_edges.are_of(device)

    def _within(self, key: str, intervals: Intervals, end_s: float) -> Intervals:
        """Return the intervals without the time before the first phase and after ``end_s``."""
        ends_s = np.clip(intervals.t_s, self._start_s, end_s)
        widths_s = np.diff(ends_s)
        shares = widths_s / np.diff(intervals.t_s)
        used = shares > 0.0
        t_s, energy_j = (
            ends_s[np.append(used, False) | np.append(False, used)],
            intervals.energy_j[used],
        )
        for place in {0, len(energy_j) - 1}:
            part_j, _ = self._timeline.seen(key, t_s[place], t_s[place + 1])
            energy_j[place] = part_j or 0.0
        return replace(
            intervals,
            t_s=t_s,
            energy_j=energy_j,
            noise_j2=(shares * intervals.noise_j2)[used],
            edge_j2=intervals.edge_j2[used],
            seen_s=(shares * intervals.seen_s)[used],
            is_counted=intervals.is_counted[used],
        )

    def _add(self, device: _Device, intervals: Intervals) -> None:
        device.done_s = float(intervals.t_s[-1])
        device.is_complete &= bool(intervals.t_s[0] - device.sums.reach_s >= self._known_s)
        device.relative_error = intervals.relative_error
        device.is_counted = intervals.method.startswith("counter")
        device.method = METHODS[max(map(METHODS.index, (device.method, intervals.method)))]
        widths_s = np.diff(intervals.t_s)
        is_used = intervals.seen_s > widths_s / 2.0
        kinds = is_used * (1 + intervals.is_counted)
        firsts = np.flatnonzero(np.diff(kinds, prepend=-1))
        for first, last in zip(firsts, [*firsts[1:], len(kinds)], strict=True):
            for start in range(first, last, _BATCH):
                yield_if_due()
                end = min(start + _BATCH, last)
                t_s = intervals.t_s[start : end + 1]
                sums = device.sums
                edges = self._edges(device, t_s[0] - sums.reach_s, t_s[-1] + sums.ahead_s)
                if kinds[start]:
                    is_exact = bool(kinds[start] == 2) or device.sums.is_exact
                    energy_j = intervals.energy_j[start:end]
                    stretch = Stretch(t_s=t_s, energy_j=energy_j, edges=edges, is_exact=is_exact)
                    self._add_noise(device, stretch, intervals.noise_j2[start:end])
                    yield_if_due()
                    device.sums.add(stretch)
                else:
                    self._miss(device, t_s[0], t_s[-1], edges)

    def _add_noise(self, device: _Device, stretch: Stretch, noise_j2: Array) -> None:
        starts = np.searchsorted(stretch.edges.t_s, stretch.t_s[:-1], side="right")
        labels = np.array(stretch.edges.labels)[starts]
        for label, variance in enumerate(np.bincount(labels, noise_j2).tolist()):
            device.noise_j2[label, stretch.is_exact] += variance

    def _miss(self, device: _Device, start_s: float, end_s: float, edges: Edges) -> None:
        ends_s = np.clip(np.concatenate([[start_s], edges.t_s, [end_s]]), start_s, end_s)
        for label, missing_s in zip(edges.labels, np.diff(ends_s).tolist(), strict=True):
            device.missing_s[label] += missing_s

    def _edges(self, device: _Device, start_s: float, end_s: float) -> Edges:
        edges_s = self._gpu_edges_s if device.follows else self._edges_s
        first, last = (bisect_right(edges_s, t_s) for t_s in (start_s, end_s))
        first = max(first, 1)
        last = max(first, last)
        return Edges(
            t_s=np.array(edges_s[first:last]),
            labels=self._labels[first - 1 : last],
            delays_s=self._delays_s[first:last] if device.follows else None,
        )

    def _forget(self, until_s: float) -> None:
        """Drop edges that no later interval depends on, and those before ``_OLDEST_S``."""
        ends_s = [device.done_s - device.sums.reach_s for device in self._devices.values()]
        old_s = max(min(ends_s, default=-math.inf), until_s - _OLDEST_S)
        old = bisect_right(self._gpu_edges_s, old_s) - 1
        if old > 0:
            del self._edges_s[:old], self._gpu_edges_s[:old], self._labels[:old]
            self._delays_s = self._delays_s[old:]
            self._known_s = self._gpu_edges_s[0]
            if self._device_edges is not None:
                self._device_edges.forget(self._edges_s[0])

    def energies(self) -> dict[str, dict[str, Energy]]:
        """Return the energy of each device in each phase.

        Devices without readings, or with readings that came too late, are left out, and so are
        devices whose phases have nearly the same power, for which the energies of the spans are
        right. Phases without readings are left out too. The errors of a phase include those of its
        edges. The energies of a device sum to the energy between the first and the last reading
        that ``update`` has added.
        """
        found = {
            key: self._by_phase(device)
            for key, device in self._devices.items()
            if device.sums.intervals and device.is_complete
        }
        return {key: by_phase for key, by_phase in found.items() if by_phase}

    def energies_until(self, until_s: float) -> dict[str, dict[str, Energy]]:
        """Return the ``energies`` up to a moment, as known now, without adding them.

        Args:
            until_s: time up to which energies are final and all spans are known.
        """
        shared = (self._timeline, self._device_edges)
        copies: dict[int, object] = {id(one): one for one in shared}
        for device in self._devices.values():
            yield_if_due()
            copy.deepcopy(device, copies)  # stores the copy in ``copies``
        ahead = copy.deepcopy(self, copies)
        ahead.update(until_s, is_final=True)
        return ahead.energies()

    def _by_phase(self, device: _Device) -> dict[str, Energy]:
        found = phase_energies(device.sums)
        if not found.shows_edges:
            return {}
        return {
            self._names[label]: Energy(
                energy_j=_rounded(found.energy_j[label]),
                stderr_j=_rounded(
                    math.hypot(found.stderr_j[label], _noise_j(device, found, label))
                ),
                edge_j=_rounded(found.edge_j[label]),
                systematic_j=_rounded(device.relative_error * abs(found.energy_j[label])),
                method=device.method,
                coverage=duration_s / (duration_s + device.missing_s[label]),
            )
            for label, duration_s in enumerate(found.duration_s.tolist())
            if duration_s > _SHORTEST_S
        }


def _rounded(value: float) -> float:
    """Return a value without the digits that depend on the machine's linear algebra."""
    return float(f"{value:.9g}")


def _noise_j(device: _Device, found: PhaseEnergies, label: int) -> float:
    """Return the standard error of a phase's energy due to the energies of its intervals.

    Between two power readings, the error is due to changes of power. The fit knows those between
    phases, and they are only an error of the sum over all phases, which is divided in proportion to
    time. With a counter, this sum is known.
    """
    share = found.duration_s[label] / found.duration_s.sum()
    unexplained = found.unexplained.tolist()
    own_j2 = device.noise_j2[label, True] + unexplained[label] * device.noise_j2[label, False]
    if device.is_counted:
        return math.sqrt(own_j2 * (1.0 - share))
    known_j2 = sum((1.0 - u) * device.noise_j2[p, False] for p, u in enumerate(unexplained))
    return math.sqrt(own_j2 + known_j2 * share**2)
