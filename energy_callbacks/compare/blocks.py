"""Splits a run into blocks that are long enough to be nearly independent."""

from typing import Final

import numpy as np

from energy_callbacks.compare.statistics import Array, Blocks
from energy_callbacks.report.charts.bands import bands
from energy_callbacks.report.model.schema import EnergyReport

# Minimum length of a block. Shorter blocks would be correlated, because caches, clocks and
# temperatures change over seconds.
_BLOCK_S: Final = 10.0
# Minimum and maximum number of blocks. Fewer blocks do not allow an estimate of their spread; more
# blocks do not improve the estimate.
_FEWEST, _MOST = 8, 20
# Number of time bins of the power curves.
_BINS: Final = 2000


def blocks(report: EnergyReport, quantity: str) -> Blocks | None:
    """Return the blocks of a quantity, each about 10 s long or longer.

    The first block is left out, because a training does some work only once, at its start.

    Returns:
        The blocks; ``None`` if fewer than eight blocks remain, or if the quantity over time is not
        known.
    """
    if quantity == "power_w":
        return _of_power(report)
    done = report.progress
    if done is None:
        return None
    counts = {"j_per_sample": done.samples, "j_per_step": done.step}.get(quantity)
    if counts is None:
        return None
    return _cut(np.asarray(done.t_s), np.asarray(done.train_j), np.asarray(counts, dtype=float))


def _of_power(report: EnergyReport) -> Blocks | None:
    curves = bands(report, _BINS)
    if not curves:
        return None
    edges_s = np.asarray(curves[0].edges_s)
    power_w = np.sum([curve.power_w for curve in curves], axis=0)
    energy_j = np.append(0.0, np.cumsum(power_w * np.diff(edges_s)))
    return _cut(edges_s, energy_j, edges_s)


def _cut(t_s: Array, amount: Array, work: Array) -> Blocks | None:
    """Cut cumulative curves into blocks of about equal time; drop the first, keep at most 20."""
    length_s = t_s[-1] - t_s[0]
    count = min(int(length_s / _BLOCK_S), len(t_s) - 1, _MOST + 1)
    if count - 1 < _FEWEST:
        return None
    edges = np.searchsorted(t_s, np.linspace(t_s[0], t_s[-1], count + 1)[1:-1])
    edges = np.unique(np.append(edges, len(t_s) - 1))
    amounts, works = np.diff(amount[edges]), np.diff(work[edges])
    # A block that contains only validation has no work, and counts may decrease after a resume.
    kept = (works > 0.0) & (amounts > 0.0)
    if int(kept.sum()) < _FEWEST:
        return None
    return Blocks(amount=amounts[kept], work=works[kept])
