"""Attributes measured energy to lines; each total keeps a part that belongs to no line.

The host's energy of a span is divided between work and waiting like the time of the main thread;
the part of work goes to lines by CPU time. The energy of GPUs goes to lines by the time of the
kernels that they launched, never by the time in which a line waited for kernels.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from energy_callbacks.accounting.attempt import ActiveAttempt
from energy_callbacks.profiling.common.source_location import Line
from energy_callbacks.profiling.lines.tally import Bin, LineTally, LineTime, Site
from energy_callbacks.report.model.profile_lines import ScopeShare

_NO_KERNELS = "no kernels were recorded, and a line that waits for the GPU did not use it"


@dataclass(slots=True)
class LineShare(LineTime):
    """Time of a line, and the energy attributed to it.

    Attributes:
        work_j: of the host, by CPU time; ``None`` if the host's energy is not known.
        waiting_j: of the host while the line waited; ``None`` if not known.
        gpu_s: seconds per step of the kernels that it launched; ``None`` without a window.
        gpu_j: of the GPUs; ``None`` if not known.
    """

    work_j: float | None = None
    waiting_j: float | None = None
    gpu_s: float | None = None
    gpu_j: float | None = None

    @property
    def host_j(self) -> float | None:
        """Energy of the host; ``None`` if not known."""
        return sum_known(self.work_j, self.waiting_j)

    @property
    def energy_j(self) -> float | None:
        """Energy of host and GPUs; ``None`` if neither is known."""
        return sum_known(self.work_j, self.waiting_j, self.gpu_j)


def sum_known(*values: float | None) -> float | None:
    """Return the sum of the values that are not ``None``; ``None`` if there are none."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


Shares = dict[Line, LineShare]


class Attribution:
    """Attributes the energy of a period that a meter has measured.

    Args:
        meter: gives energies.
        start_s: begin of the period, by the meter's clock.
        end_s: its end.

    Attributes:
        shares: time and energy of each line so far.
    """

    def __init__(self, meter: ActiveAttempt, start_s: float, end_s: float) -> None:
        self._meter = meter
        self._start_s, self._end_s = start_s, end_s
        self.shares: Shares = {}

    def host(self, tally: LineTally, process_s: float) -> ScopeShare | None:
        """Attribute the energy of the host; returns ``None`` if it is not known.

        Args:
            tally: time of lines.
            process_s: CPU time of the process in the period.
        """
        spans = [
            (bin_, self._energy_j("host", start_s, min(end_s, self._end_s)))
            for start_s, end_s, bin_ in tally.spans()
            if start_s < self._end_s
        ]
        return self._scope("host", attribute_host(spans, tally.line, process_s, self.shares))

    def gpu(
        self,
        train: Sequence[tuple[float, float]],
        kernel_s: Mapping[Line | None, float],
        busy_s: float,
    ) -> ScopeShare | None:
        """Attribute the energy of GPUs; returns ``None`` if it is not known.

        Args:
            train: spans of the phase ``train``; empty if no phases were reported.
            kernel_s: seconds of kernels per step by line; empty if none were recorded.
            busy_s: seconds in which kernels ran, summed over GPUs and steps.
        """
        spans = [span for span in train or ((self._start_s, self._end_s),) if span[1] > span[0]]
        keys = self._meter.timeline.keys("gpu")
        if not kernel_s or not spans or not keys:
            return self._scope("gpu", None, reason=_NO_KERNELS)
        train_s = sum(end_s - start_s for start_s, end_s in spans)
        attributed_j = attribute_gpu(
            sum(self._energy_j("gpu", *span) or 0.0 for span in spans),
            train_s,
            idle_w=sum(self._lowest_w(key) for key in keys),
            busy=min(busy_s / (train_s * len(keys)), 1.0),
            kernel_s=kernel_s,
            shares=self.shares,
        )
        return self._scope("gpu", attributed_j)

    def _scope(
        self, scope: str, attributed_j: float | None, reason: str | None = None
    ) -> ScopeShare | None:
        energy_j = self._energy_j(scope, self._start_s, self._end_s)
        if energy_j is None:
            return None
        return ScopeShare(scope=scope, energy_j=energy_j, attributed_j=attributed_j, reason=reason)

    def _energy_j(self, scope: str, start_s: float, end_s: float) -> float | None:
        return self._meter.energy(start_s, end_s, scope).energy_j

    def _lowest_w(self, key: str) -> float:
        """Return the lowest power of a device: the first percentile of its readings."""
        intervals = self._meter.timeline.intervals(key, self._start_s, self._end_s)
        if intervals is None or not (intervals.seen_s > 0.0).any():
            energy_j = self._energy_j(key, self._start_s, self._end_s) or 0.0
            return energy_j / (self._end_s - self._start_s)
        seen = intervals.seen_s > 0.0
        return float(np.quantile(intervals.energy_j[seen] / intervals.seen_s[seen], 0.01))


def attribute_host(
    spans: Sequence[tuple[Bin, float | None]],
    line: Callable[[Site], Line],
    process_s: float,
    shares: Shares,
) -> float | None:
    """Attribute the host's energy to lines.

    A span's energy E is divided by the main thread's time: waiting gets E x waited / seen. The rest
    goes by CPU seconds; those of other threads count for the line in whose call they were used.
    Work stays unattributed in proportion to the CPU time that no sample accounts for.

    Args:
        spans: time of each place in a span, and the span's energy in joules, ``None`` if unknown.
        line: returns the line of a place.
        process_s: CPU time of the process over all spans.
        shares: time and energy are added to it.

    Returns:
        Attributed joules; ``None`` if the energy of no span is known.
    """
    sampled_s = sum(time.busy_s for bin_, _ in spans for time in bin_.values())
    sampled = min(sampled_s / process_s, 1.0) if process_s > 0.0 else 1.0
    attributed_j = 0.0
    for bin_, energy_j in spans:
        seen_s = sum(time.wall_s for time in bin_.values())
        busy_s = sum(time.busy_s for time in bin_.values())
        waited_s = sum(time.wait_s for time in bin_.values())
        for site, time in bin_.items():
            if site is None:
                continue
            share = shares.setdefault(line(site), LineShare())
            share.merge(time)
            if energy_j is None or seen_s <= 0.0:
                continue
            work = (1.0 - waited_s / seen_s) * time.busy_s / busy_s if busy_s > 0.0 else 0.0
            work_j, waiting_j = energy_j * sampled * work, energy_j * time.wait_s / seen_s
            share.work_j = (share.work_j or 0.0) + work_j
            share.waiting_j = (share.waiting_j or 0.0) + waiting_j
            attributed_j += work_j + waiting_j
    return attributed_j if any(energy_j is not None for _, energy_j in spans) else None


def attribute_gpu(
    energy_j: float,
    train_s: float,
    *,
    idle_w: float,
    busy: float,
    kernel_s: Mapping[Line | None, float],
    shares: Shares,
) -> float:
    """Attribute the GPUs' energy of training to the lines whose kernels they executed.

    An idle GPU draws its lowest power; the rest belongs to kernels, by their time.

    Args:
        energy_j: of the GPUs, in the phase that the windows are from.
        train_s: duration of that phase.
        idle_w: lowest power that was read.
        busy: share of that phase in which kernels ran.
        kernel_s: seconds per step by the line that launched them; ``None`` for no line.
        shares: energy is added to it.

    Returns:
        Attributed joules.
    """
    idle_j = min(idle_w * (1.0 - busy) * train_s, energy_j)
    all_s = sum(kernel_s.values())
    attributed_j = 0.0
    for line, seconds in kernel_s.items():
        if line is None or all_s <= 0.0:
            continue
        share = shares.setdefault(line, LineShare())
        share.gpu_s = seconds
        share.gpu_j = (energy_j - idle_j) * seconds / all_s
        attributed_j += share.gpu_j
    return attributed_j
