"""The rule by which stated intervals are judged: how many hold the truth, and how wide they are."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from scipy.special import bdtr

from tests.benchmarks.bars import Bar
from tests.benchmarks.common.power_signal import Array

Part = Literal["shape part", "whole interval"]
"""The interval without the systematic bound, with gain 1, or all of it, with any gain."""

# A stated 95 % interval must hold the truth in this share of the cases.
COVERAGE: Final = 0.90
# A cell misses if so few are held that chance gives it a probability, over all cells, below this.
_CHANCE: Final = 0.01
FEWEST: Final = 200
# Largest half-width in median errors. NARROW is the share of the truth up to which the width
# of a shape part is never too large.
WIDTH_LIMIT: Final = 4.0
SHAPE_WIDTH_LIMIT: Final = 6.0
NARROW: Final = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalCell:
    """The quality of the intervals stated under one set of conditions.

    Attributes:
        name: the conditions.
        part: which part of the error is judged.
        count: number of intervals.
        coverage: share of the intervals that hold the truth.
        half_width: median half-width, as a share of the truth.
        error: median of |found - true| / true.
        width_limit: the largest half-width in median errors; ``None`` if it is not judged.
        narrow: half-width, as a share of the truth, that is never too large.
    """

    name: str
    part: Part
    count: int
    coverage: float
    half_width: float
    error: float
    width_limit: float | None = WIDTH_LIMIT
    narrow: float = 0.0

    @property
    def ratio(self) -> float:
        """Half-width in units of the median error."""
        return self.half_width / self.error if self.error else float("inf")

    def bars(self, cells: int) -> Iterator[Bar]:
        """Yield the bars of this cell, which is one of ``cells``; too few intervals miss them."""
        name, is_enough = f"{self.part}, {self.name}", self.count >= FEWEST
        yield Bar(
            name=f"{name}: share held",
            value=self.coverage if is_enough else np.nan,
            at_least=least_coverage(self.count, cells),
        )
        if self.width_limit is not None:
            yield Bar(
                name=f"{name}: width in median errors",
                value=self._judged_ratio() if is_enough else np.nan,
                at_most=self.width_limit,
            )

    def _judged_ratio(self) -> float:
        """Return 0 for a width that is never too large, and otherwise ``ratio``."""
        return 0.0 if self.half_width <= self.narrow else self.ratio

    def is_met(self, cells: int) -> bool:
        """Return whether all bars of this cell are met."""
        return all(bar.is_met for bar in self.bars(cells))


def interval_cell(
    name: str,
    part: Part,
    error: Array,
    width: Array,
    *,
    width_limit: float | None = WIDTH_LIMIT,
    narrow: float = 0.0,
) -> IntervalCell:
    """Return the quality of intervals.

    Args:
        name: the conditions.
        part: which part of the error is judged.
        error: |found - true| / true; NaN if nothing was found, which counts as not held.
        width: half-widths of the intervals, as shares of the truth.
        width_limit: see ``IntervalCell``.
        narrow: see ``IntervalCell``.
    """
    is_found = np.isfinite(error)
    return IntervalCell(
        name=name,
        part=part,
        count=len(error),
        coverage=float(np.mean(is_found & (error <= width))),
        half_width=float(np.median(width)),
        error=float(np.median(error[is_found])) if is_found.any() else np.nan,
        width_limit=width_limit,
        narrow=narrow,
    )


def least_coverage(count: int, cells: int) -> float:
    """Return the least share held that is no miss.

    A share is a miss if that many or fewer of ``count`` intervals are held with a probability below
    1 % / ``cells``, given that each is held with the probability ``COVERAGE``.

    >>> least_coverage(200, 100), least_coverage(10_000, 100)
    (0.815, 0.8887)
    """
    # scipy.stats.binom.ppf gives the same, but each process takes a second to import scipy.stats.
    held_at_most = bdtr(np.arange(count + 1), count, COVERAGE)
    return float(np.searchsorted(held_at_most, _CHANCE / cells)) / count


def bars_of(cells: Sequence[IntervalCell]) -> list[Bar]:
    """Return the bars of all cells of a benchmark."""
    return [bar for cell in cells for bar in cell.bars(len(cells))]
