"""Progress of a training and its energy, by which runs are compared."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from energy_callbacks.report.collect.merge import MergedAttempt
from energy_callbacks.report.collect.run_energy import Array, energy_at, whole_j
from energy_callbacks.report.model.models import Progress, Span

# Of a run of any length: enough for blocks and curves, 15 kB of a report.
MAX_POINTS: Final = 240
_T_DECIMALS, _ENERGY_DECIMALS = 3, 1
_EDGES: Final = ("start_s", "end_s")


class _Stretch(NamedTuple):
    """Lines of one attempt: when, steps, samples (NaN: unknown), joules, joules in training."""

    t_s: Array
    step: Array
    samples: Array
    energy_j: Array
    train_j: Array


def progress(attempts: Sequence[MergedAttempt], timeline: Sequence[Span]) -> Progress | None:
    """Of the lead process; ``None`` if no steps or no energy were reported."""
    stretches: list[_Stretch] = []
    before = (0.0, 0.0, 0.0, 0.0)
    for attempt in attempts:
        start, samples, used_j, train_j = before
        if (resumed := attempt.lead.resumed_at_step) is not None:
            start = float(resumed)
        found = _stretch(attempt, timeline)
        if found is not None:
            moved = _Stretch(
                found.t_s,
                found.step + start,
                found.samples + samples,
                found.energy_j + used_j,
                found.train_j + train_j,
            )
            stretches.append(moved)
            start, samples, train_j = (
                float(one[-1]) for one in (moved.step, moved.samples, moved.train_j)
            )
        before = (start, samples, used_j + whole_j(attempt), train_j)
    if not stretches:
        return None
    whole = _Stretch(*(np.concatenate(parts) for parts in zip(*stretches, strict=True)))
    last = len(whole.t_s) - 1
    kept = np.unique(np.linspace(0, last, min(MAX_POINTS, last + 1)).round().astype(int))
    samples = whole.samples[kept]
    return Progress(
        t_s=_rounded(whole.t_s[kept], _T_DECIMALS),
        step=tuple(int(step) for step in whole.step[kept]),
        samples=None if np.isnan(samples).any() else _rounded(samples, 1),
        energy_j=_rounded(whole.energy_j[kept], _ENERGY_DECIMALS),
        train_j=_rounded(whole.train_j[kept], _ENERGY_DECIMALS),
    )


def _stretch(attempt: MergedAttempt, timeline: Sequence[Span]) -> _Stretch | None:
    lines = attempt.lead.steps
    t_s = np.asarray([line["end_s"] for line in lines]) + attempt.start_of(attempt.lead)
    spans = [span for span in timeline if span.phase == "train"]
    starts_s, ends_s = (np.asarray([getattr(span, n) for span in spans]) for n in _EDGES)
    known_j = energy_at(attempt, np.concatenate((t_s, starts_s, ends_s)))
    if not lines or known_j is None:
        return None
    energy_j, starts_j, ends_j = np.split(known_j, (len(t_s), len(t_s) + len(spans)))
    told = [np.nan if line["samples"] is None else float(line["samples"]) for line in lines]
    return _Stretch(
        t_s,
        np.cumsum([float(line["steps"]) for line in lines]),
        # Each rank reports its own samples.
        np.cumsum(told) * len(attempt.processes),
        energy_j,
        _inside(t_s, energy_j, (starts_s, starts_j), ends_j),
    )


def _inside(t_s: Array, energy_j: Array, starts: tuple[Array, Array], ends_j: Array) -> Array:
    """Energy until each moment in spans that follow each other: the whole ones, and the last."""
    starts_s, starts_j = starts
    if not len(starts_s):
        return np.zeros(len(t_s))
    last = np.searchsorted(starts_s, t_s, side="right") - 1
    before_j = np.append(0.0, np.cumsum(ends_j - starts_j))
    inside_j = np.minimum(energy_j, ends_j[last]) - starts_j[last]
    return np.where(last < 0, 0.0, before_j[last] + inside_j)


def _rounded(values: Array, decimals: int) -> tuple[float, ...]:
    return tuple(values.round(decimals).tolist())
