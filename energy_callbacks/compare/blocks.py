"""Blocks of one run that are long enough to be nearly independent."""

from typing import Final

import numpy as np

from energy_callbacks.compare.statistics import Array, Blocks
from energy_callbacks.report.charts.bands import bands
from energy_callbacks.report.model.schema import EnergyReport

# Steps that are neighbours resemble each other: caches, clocks and heat change over seconds.
_BLOCK_S: Final = 10.0
# Fewer say nothing of how much they differ, more say no more of it.
_FEWEST, _MOST = 8, 20
_BINS: Final = 2000


def blocks(report: EnergyReport, quantity: str) -> Blocks | None:
    """A run in blocks of a quantity; ``None`` if it is too short for eight of ten seconds.

    The first block is left out: a training begins with work that it does once.
    """
    if quantity == "power_w":
        return _of_power(report)
    done = report.progress
    if done is None:
        return None
    if quantity == "j_per_sample" and done.samples is not None:
        work = np.asarray(done.samples)
    elif quantity == "j_per_step":
        work = np.asarray(done.step, dtype=float)
    else:
        return None
    return _cut(np.asarray(done.t_s), np.asarray(done.train_j), work)


def _of_power(report: EnergyReport) -> Blocks | None:
    found = bands(report, _BINS)
    if not found:
        return None
    edges_s = np.asarray(found[0].edges_s)
    power_w = np.sum([one.power_w for one in found], axis=0)
    energy_j = np.append(0.0, np.cumsum(power_w * np.diff(edges_s)))
    return _cut(edges_s, energy_j, edges_s)


def _cut(t_s: Array, amount: Array, work: Array) -> Blocks | None:
    """Equal stretches of time, as many as there may be, by cumulative amount and work."""
    length_s = t_s[-1] - t_s[0]
    count = min(int(length_s / _BLOCK_S), len(t_s) - 1, _MOST + 1)
    if count - 1 < _FEWEST:
        return None
    edges = np.searchsorted(t_s, np.linspace(t_s[0], t_s[-1], count + 1)[1:-1])
    edges = np.unique(np.append(edges, len(t_s) - 1))
    in_each, for_it = np.diff(amount[edges]), np.diff(work[edges])
    # A block without work is one of validation alone; a resume goes back.
    kept = (for_it > 0.0) & (in_each > 0.0)
    if int(kept.sum()) < _FEWEST:
        return None
    return Blocks(amount=in_each[kept], work=for_it[kept])
