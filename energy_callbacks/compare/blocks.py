"""Splits a run into blocks of time that are long enough to be nearly independent."""

from typing import Final

import numpy as np

from energy_callbacks.compare.statistics import Array, Blocks
from energy_callbacks.report.charts.bands import bands
from energy_callbacks.report.model.schema import EnergyReport

# Minimum length of a block in s, before its edges are moved to the next data points. Shorter blocks
# would be correlated, because caches, clocks and temperatures take seconds to change.
_BLOCK_S: Final = 10.0
# Minimum and maximum number of blocks. An interval from fewer blocks would be too uncertain; more
# blocks would hardly improve it.
_FEWEST, _MOST = 8, 20
# Maximum number of time bins of the power curves.
_BINS: Final = 2000


def blocks(report: EnergyReport, quantity: str) -> Blocks | None:
    """Return the blocks of a run for one quantity, each about 10 s long or longer.

    The first block is left out, because a training does some work only once, at its start.

    Args:
        report: report of the run.
        quantity: name of the quantity.

    Returns:
        8 to 20 blocks. ``None`` if fewer than 8 remain, if the run has no data for the quantity, or
        if the quantity is not ``power_w``, ``j_per_sample`` or ``j_per_step``.
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
    """Cut two cumulative curves into blocks of about equal time, and drop the first block.

    Args:
        t_s: (n,) times of the points of both curves, s.
        amount: (n,) cumulative energy at each point, J.
        work: (n,) cumulative samples, steps or seconds at each point.

    Returns:
        8 to 20 blocks; ``None`` if fewer than 8 blocks remain.
    """
    length_s = t_s[-1] - t_s[0]
    count = min(int(length_s / _BLOCK_S), len(t_s) - 1, _MOST + 1)
    if count - 1 < _FEWEST:
        return None
    edges = np.searchsorted(t_s, np.linspace(t_s[0], t_s[-1], count + 1)[1:-1])
    edges = np.unique(np.append(edges, len(t_s) - 1))
    amounts, works = np.diff(amount[edges]), np.diff(work[edges])
    # Blocks without work, such as blocks of validation alone, are left out. Blocks in which the
    # number of steps decreases are left out too: there, a resumed training repeats steps.
    kept = (works > 0.0) & (amounts > 0.0)
    if int(kept.sum()) < _FEWEST:
        return None
    return Blocks(amount=amounts[kept], work=works[kept])
