"""What the meter measured while lines were followed, as input of ``joules``."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from energy_callbacks.accounting.attempt import ActiveAttempt
from energy_callbacks.profiling.lines import joules
from energy_callbacks.profiling.lines.joules import ScopeTotal, Shares
from energy_callbacks.profiling.lines.source_location import Line
from energy_callbacks.profiling.lines.tally import LineTally

_NO_KERNELS = "no kernels were recorded, and a line that waits for the GPU did not use it"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedRun:
    """The time in which lines were followed.

    Attributes:
        meter: that measured it.
        start_s: by the meter's clock.
        end_s: by the meter's clock, too.
        process_s: CPU time of the process in it.
        train: spans of the phase ``train``; empty if no phases were reported.
    """

    meter: ActiveAttempt
    start_s: float
    end_s: float
    process_s: float
    train: tuple[tuple[float, float], ...]


def host(run: TrackedRun, tally: LineTally, shares: Shares) -> ScopeTotal | None:
    """Fill in the host's energy; ``None`` if not known."""
    spans = [
        (one, run.meter.energy(start_s, min(end_s, run.end_s), "host").energy_j)
        for start_s, end_s, one in tally.spans()
        if start_s < run.end_s
    ]
    given_j = joules.host(spans, tally.line, run.process_s, shares)
    energy_j = run.meter.energy(run.start_s, run.end_s, "host").energy_j
    return None if energy_j is None else ScopeTotal(energy_j=energy_j, attributed_j=given_j)


def gpu(
    run: TrackedRun, kernel_s: Mapping[Line | None, float], busy_s: float, shares: Shares
) -> ScopeTotal | None:
    """Fill in the GPUs' energy; ``None`` if not known.

    Args:
        run: with the spans that the kernels stand for.
        kernel_s: a step, by line; empty if none were recorded.
        busy_s: seconds in which kernels ran, of all GPUs and all steps.
        shares: filled.
    """
    energy_j = run.meter.energy(run.start_s, run.end_s, "gpu").energy_j
    if energy_j is None:
        return None
    train = [span for span in run.train or ((run.start_s, run.end_s),) if span[1] > span[0]]
    if not kernel_s or not train:
        return ScopeTotal(energy_j=energy_j, attributed_j=None, reason=_NO_KERNELS)
    keys = run.meter.timeline.keys("gpu")
    train_s = sum(end_s - start_s for start_s, end_s in train)
    given_j = joules.gpu(
        sum(run.meter.energy(*span, "gpu").energy_j or 0.0 for span in train),
        train_s,
        idle_w=sum(_lowest_w(run, key) for key in keys),
        busy=min(busy_s / (train_s * len(keys)), 1.0),
        kernel_s=kernel_s,
        shares=shares,
    )
    return ScopeTotal(energy_j=energy_j, attributed_j=given_j)


def _lowest_w(run: TrackedRun, key: str) -> float:
    """The lowest power of a device, but for a hundredth of its readings."""
    found = run.meter.timeline.intervals(key, run.start_s, run.end_s)
    if found is None or not (found.seen_s > 0.0).any():
        energy_j = run.meter.energy(run.start_s, run.end_s, key).energy_j or 0.0
        return energy_j / (run.end_s - run.start_s)
    seen = found.seen_s > 0.0
    return float(np.quantile(found.energy_j[seen] / found.seen_s[seen], 0.01))
