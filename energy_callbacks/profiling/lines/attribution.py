"""Attributes measured energy to source lines; some of the energy may belong to no line.

The host's energy in a span of time is divided into energy for waiting and energy for work. Their
ratio is the ratio of waiting time (``LineTime.wait_s``) to the rest of the time. The energy for
work is attributed to lines by CPU time, the energy for waiting by waiting time. The energy of GPUs
is attributed by the time of the kernels that a line launched, not by the time in which the line
waited for kernels.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from energy_callbacks.accounting.attempt import ActiveAttempt
from energy_callbacks.core.stats import sum_known
from energy_callbacks.profiling.common.source_location import Line
from energy_callbacks.profiling.lines.tally import Bin, LineTally, LineTime, Site
from energy_callbacks.report.model.profile_lines import ScopeShare

_NO_KERNELS = "no kernels were recorded, and a line that waits for the GPU did not use it"


@dataclass(slots=True)
class LineShare(LineTime):
    """Time of a line, and the energy attributed to it in joules.

    Attributes:
        work_j: energy of the host for the line's work; ``None`` if the host's energy is unknown.
        waiting_j: energy of the host while the line waited; ``None`` if unknown.
        gpu_s: seconds per step of the kernels that the line launched; ``None`` if it launched no
            recorded kernels.
        gpu_j: energy of the GPUs that is attributed to the line; ``None`` if unknown.
    """

    work_j: float | None = None
    waiting_j: float | None = None
    gpu_s: float | None = None
    gpu_j: float | None = None

    @property
    def host_j(self) -> float | None:
        """Energy of the host for the line; ``None`` if unknown."""
        return sum_known((self.work_j, self.waiting_j))

    @property
    def energy_j(self) -> float | None:
        """Sum of the known energies of host and GPUs; ``None`` if both are unknown."""
        return sum_known((self.work_j, self.waiting_j, self.gpu_j))


Shares = dict[Line, LineShare]


class Attribution:
    """Attributes the energy of one period of an attempt to lines.

    Args:
        meter: the attempt, which measured the energy.
        start_s: start of the period, in seconds of the meter's clock.
        end_s: end of the period, by the same clock.

    Attributes:
        shares: time and energy that have been attributed to each line so far.
    """

    def __init__(self, meter: ActiveAttempt, start_s: float, end_s: float) -> None:
        self._meter = meter
        self._start_s, self._end_s = start_s, end_s
        self.shares: Shares = {}

    def host(self, tally: LineTally, process_s: float) -> ScopeShare | None:
        """Attribute the energy of the host; return its total and the attributed part.

        Args:
            tally: times by line, from stack samples.
            process_s: CPU time of the process in the period, in seconds.

        Returns:
            Total and attributed energy; ``None`` if the host's energy is unknown.
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
        """Attribute the energy of the GPUs in phase ``train`` to lines.

        Args:
            train: start and end of each span of phase ``train``, by the meter's clock; if it is
                empty, the whole period is used.
            kernel_s: seconds of kernels per step by line; empty if none were recorded.
            busy_s: seconds in which kernels ran, summed over GPUs and all steps of training.

        Returns:
            Energy of the whole period and its attributed part; ``None`` if the GPUs' energy is
            unknown.
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
        """Return the first percentile of a device's power, W; the mean if there are no readings."""
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
    """Attribute the host's energy to lines, and add times and energies to ``shares``.

    Let ``E`` be the host's energy in a span, ``seen`` the sampled time of the main thread, and
    ``waited`` its waiting time (sums of ``LineTime.wall_s`` and ``LineTime.wait_s``). Then

    - ``E * waited / seen`` is for waiting and attributed in proportion to the lines' waiting time;
    - the rest is for work and attributed in proportion to the lines' CPU time. CPU time of other
      threads is added to the line that the main thread was executing at that time. If the CPU time
      in the samples is only a fraction of ``process_s``, only that fraction of the energy for work
      is attributed.

    Args:
        spans: for each span of time, the sampled time of each place in the code, and the host's
            energy in joules, ``None`` if unknown.
        line: function that returns the line of a place.
        process_s: CPU time of the process over all spans, in seconds.
        shares: time and energy by line.

    Returns:
        Attributed energy in joules; ``None`` if the energy of every span is unknown.
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
    """Attribute the GPUs' energy in training to the lines that launched kernels.

    Idle GPUs are assumed to draw ``idle_w``. The rest of the energy is attributed to kernels in
    proportion to their time.

    Args:
        energy_j: energy of the GPUs in training, in joules.
        train_s: duration of training in seconds.
        idle_w: sum of the GPUs' lowest powers, in W.
        busy: share of the time in which kernels ran, mean over the GPUs, 0 to 1.
        kernel_s: seconds of kernels per step by the line that launched them; the key ``None`` is
            for kernels without a line.
        shares: time and energy by line; kernel time and energy are added.

    Returns:
        Attributed energy in joules.
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
