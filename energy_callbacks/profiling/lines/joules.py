"""Joules of lines: shares of measured totals, each with a part that belongs to no line.

Nothing here measures. The host's energy of each span goes to work and to waiting as the main
thread's time does; that of work goes to lines by CPU time. The GPU's goes by the time of the
kernels that a line launched, never by the time in which a line waited for them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from energy_callbacks.profiling.lines.source_location import Line
from energy_callbacks.profiling.lines.tally import Bin, LineTime, Site


@dataclass(slots=True, kw_only=True)
class LineShare:
    """Time of one line, and the energy attributed to it.

    Attributes:
        spent: seconds.
        work_j: of the host, by CPU time; ``None`` if the host's energy is not known.
        waiting_j: of the host while the line waited; ``None`` if not known.
        gpu_s: seconds a step of the kernels that it launched; ``None`` if no window was open.
        gpu_j: of the GPUs; ``None`` if not known.
    """

    spent: LineTime = field(default_factory=LineTime)
    work_j: float | None = None
    waiting_j: float | None = None
    gpu_s: float | None = None
    gpu_j: float | None = None

    @property
    def energy_j(self) -> float | None:
        """All that was attributed; ``None`` if nothing is known."""
        known = [j for j in (self.work_j, self.waiting_j, self.gpu_j) if j is not None]
        return sum(known) if known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeTotal:
    """Energy of a scope over the whole time, and how much of it lines got.

    Attributes:
        energy_j: measured or estimated; ``None`` if not known.
        attributed_j: sum over the lines; ``None`` if none could be attributed.
        reason: why there is no more, if known.
    """

    energy_j: float | None
    attributed_j: float | None
    reason: str | None = None


Shares = dict[Line, LineShare]


def host(
    spans: Sequence[tuple[Bin, float | None]],
    line: Callable[[Site], Line],
    process_s: float,
    shares: Shares,
) -> float | None:
    """Give the host's energy to lines.

    A span's energy E is split by the main thread's time: waiting gets E · waited / seen. The rest
    goes by CPU seconds, if those of other threads count for the line whose call they were used
    in. CPU time that no look accounts for keeps its part of the work unattributed.

    Args:
        spans: what was spent in each, and its energy in joules, ``None`` if not known.
        line: which line a place is.
        process_s: CPU time of the process over all spans.
        shares: filled.

    Returns:
        Joules attributed; ``None`` if the energy of no span is known.
    """
    credited_s = sum(one.cpu_s + one.others_s for bin_, _ in spans for one in bin_.values())
    told = min(credited_s / process_s, 1.0) if process_s > 0.0 else 1.0
    is_known, given_j = False, 0.0
    for bin_, energy_j in spans:
        seen_s = sum(one.wall_s for one in bin_.values())
        cpu_s = sum(one.cpu_s + one.others_s for one in bin_.values())
        wait_part = sum(one.wait_s for one in bin_.values()) / seen_s if seen_s > 0.0 else 0.0
        is_known |= energy_j is not None
        for place, one in bin_.items():
            if place is None:
                continue
            share = shares.setdefault(line(place), LineShare())
            share.spent.merge(one)
            if energy_j is None or seen_s <= 0.0:
                continue
            work_part = (one.cpu_s + one.others_s) / cpu_s if cpu_s > 0.0 else 0.0
            work_j = energy_j * (1.0 - wait_part) * told * work_part
            waiting_j = energy_j * one.wait_s / seen_s
            share.work_j = (share.work_j or 0.0) + work_j
            share.waiting_j = (share.waiting_j or 0.0) + waiting_j
            given_j += work_j + waiting_j
    return given_j if is_known else None


def gpu(
    energy_j: float,
    train_s: float,
    *,
    idle_w: float,
    busy: float,
    kernel_s: Mapping[Line | None, float],
    shares: Shares,
) -> float:
    """Give the GPUs' energy of training to the lines whose kernels they ran.

    An idle GPU draws its lowest power; what is left belongs to kernels, by their time.

    Args:
        energy_j: of the GPUs, in the phase that the windows are from.
        train_s: its seconds.
        idle_w: lowest power that was seen.
        busy: share of its time in which kernels ran.
        kernel_s: a step, by the line that launched them; ``None`` is no line of the user's.
        shares: filled.

    Returns:
        Joules attributed.
    """
    idle_j = min(idle_w * (1.0 - busy) * train_s, energy_j)
    all_s = sum(kernel_s.values())
    given_j = 0.0
    for line, seconds in kernel_s.items():
        if line is None or all_s <= 0.0:
            continue
        share = shares.setdefault(line, LineShare())
        share.gpu_s = seconds
        share.gpu_j = (energy_j - idle_j) * seconds / all_s
        given_j += share.gpu_j
    return given_j
