"""Our controller: the inverse of the predictor, corrected by what was measured.

Power of waiting tenants and power of their work each have a factor, measured over predicted. Both
are estimated from windows, and so is the noise of windows. The level (clock, limit or duty) is the
highest at which 99 % of the windows are below the cap::

    estimated power + 2.33 * sqrt(variance of the estimate + noise) <= cap

If only the duty can be changed, each point has the cap as its budget, and the margin is one
standard deviation: the plant then lets tenants pause in windows that would be above.

A cap that changes has another level at once. After a window above the cap, the level is lower than
before. The partition changes if another one promises more throughput, by predictions that measured
windows have replaced or corrected.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from energy_callbacks.inference.control.candidates import (
    Array,
    Candidates,
    candidates,
    partitions,
    planned,
)
from energy_callbacks.inference.control.estimate import Difference, Estimates, Partition
from energy_callbacks.inference.control.levels import levels
from energy_callbacks.inference.control.protocols import (
    Abilities,
    Need,
    OperatingPoint,
    Tenants,
    Window,
)
from energy_callbacks.inference.planner.problem import Problem
from energy_callbacks.inference.protocols import PredictionModel
from energy_callbacks.inference.records import MeasuredWindow, needed

# Quantiles of the normal distribution. 1 % of the windows may be above the cap; a level is left for
# a higher one only if 0.3 % would be above (second value), so that levels do not alternate.
_Z: Final = (2.33, 2.75)
# The same if the plant itself ends a window that would be above: 16 and 10 % of the windows.
_Z_BUDGET: Final = (1.0, 1.28)
# A window in which tenants paused for a larger part says little about their power.
_MOST_PAUSED: Final = 0.5
# Another partition must promise this much more throughput, as a part. Each one that was tried under
# the same cap raises it by the same, because the more predictions are compared, the more often the
# best one is wrong.
_GAIN: Final = 0.02
# Processes need some seconds to start. What other processes promise counts less by this many
# standard deviations of the prediction, because the one that promises most is most often too
# optimistic. Other batches of the same processes cost little to try: what they promise counts more
# by this many, unless the prediction is lower than the present throughput by this part.
_CAUTION: Final = 0.5
_HOPE: Final = 1.0
_LOWER: Final = 0.05
# Windows at a partition before another one is considered: the noise of throughput is 0.5 %.
_SETTLED: Final = 5
_LEAST_W: Final = 0.001  # sensors that fail show 0
_NEVER: Final = -1e6  # logarithm of the throughput of a partition that is always above the cap


class ModelInverse:
    """Keeps the power below a cap with the inverse of a predictor.

    Args:
        problem: models, their limits and weights; its cap and settings are not used.
        model: the predictor.
        partition: tenants that are kept; ``None`` to choose them.
        measured: windows of this GPU, such as its profile and verified plans. The partitions that
            were measured without a lower clock or limit are known from the start.

    Raises:
        ValueError: if the objective is not throughput.
    """

    name = "model"
    needs: frozenset[Need] = frozenset({"partition", "batch", "clock"})

    def __init__(
        self,
        problem: Problem,
        model: PredictionModel,
        *,
        partition: Tenants | None = None,
        measured: Sequence[MeasuredWindow] = (),
    ) -> None:
        if problem.objective != "throughput":
            raise ValueError(
                f"a controller maximises throughput, got the objective {problem.objective!r}; use "
                "a problem with the objective 'throughput'"
            )
        self.degraded = ""
        self._problem = problem
        self._model = model
        self._fixed = partition
        self._rows = [one for one in measured if _is_whole(one)]
        self._refused: set[int] = set()
        self._is_planned = True
        self._cap_w = math.inf
        self._at = self._level = 0
        self._held = 0  # windows since the partition or the cap has changed
        self._tried = 0
        self._has_learned = False

    def start(self, cap_w: float, abilities: Abilities) -> OperatingPoint:
        """See ``Controller``."""
        self._asked = self._problem
        self._has_budget = "budget" in abilities.can and not {"clock", "limit"} & abilities.can
        self._z = _Z_BUDGET if self._has_budget else _Z
        if "batch" not in abilities.can:
            self._asked = replace(self._asked, batches=self._asked.batches[-1:])
        self._table = self._tabulate(abilities)
        self._estimates = Estimates(self._table)
        self._has_learned = False
        self._refused = set()
        for row in self._rows:
            self._know(row)
        self.degraded = _degraded(abilities, self._asked)
        return self.cap_changed(cap_w)

    def cap_changed(self, cap_w: float) -> OperatingPoint:
        """See ``Controller``."""
        self._cap_w = cap_w
        self._tried = 0
        self._is_planned = self._fixed is not None or len(set(self._problem.models)) == 1
        if self._has_learned:
            self._reconsider()
        else:
            self._plan()
            self._at = self._most_promising()
        self._level = self._highest(self._z[0])
        return self._point

    def step(self, window: Window) -> OperatingPoint:
        """See ``Controller``."""
        self._plan()
        if window.refused is not None and window.refused == self._point.configuration.tenants:
            self._go_back(window)
        is_present = window.point == self._point
        is_above = window.power_mean_w > self._cap_w
        if is_present and (window.is_steady or is_above) and window.paused <= _MOST_PAUSED:
            self._learn(window)
        self._move(window.power_mean_w if is_above and is_present else None)
        if self._held >= _SETTLED and (not is_above or self._level == 0):
            self._reconsider()
        return self._point

    @property
    def _point(self) -> OperatingPoint:
        table = self._table
        budget_w = self._cap_w if self._has_budget else None
        return table.levels[self._level].point(table.partitions[self._at], budget_w)

    def _tabulate(self, abilities: Abilities) -> Candidates:
        choices = levels(abilities)
        if self._fixed is not None:
            return candidates(self._asked, self._model, choices, [self._fixed])
        if "partition" not in abilities.can:
            raise ValueError(
                "the plant cannot change its partition, and none is given; give the tenants that "
                "it has"
            )
        found = partitions(self._asked, self._model, choices)
        known = [row.configuration.tenants for row in self._rows if self._is_served(row)]
        return candidates(self._asked, self._model, choices, list(dict.fromkeys(found + known)))

    def _is_served(self, row: MeasuredWindow) -> bool:
        """Return whether the tenants of a row serve all models and no others."""
        return {one.model for one in row.configuration.tenants} == set(self._problem.models)

    def _plan(self) -> None:
        """Add the plan for the present cap to the partitions, once.

        It takes a second or two, in which a cap that has changed must already be followed. So this
        is then done after the next window.
        """
        if self._is_planned:
            return
        self._is_planned = True
        table = self._table
        found = planned(self._asked, self._model, table.levels, self._cap_w)
        if found is not None and found not in table.partitions:
            every = [*table.partitions, found]
            self._table = candidates(self._asked, self._model, table.levels, every)
            self._estimates.table = self._table

    def _know(self, row: MeasuredWindow) -> None:
        """Learn from a window that was measured before."""
        tenants, table = row.configuration.tenants, self._table
        if tenants in table.partitions:
            at, level = table.partitions.index(tenants), len(table.levels) - 1
            rate = row.throughput_per_s or 0.0
            self._add(at, level, row.power_mean_w or 0.0, row.tenant_throughputs_per_s, rate)

    def _go_back(self, window: Window) -> None:
        """Return to the tenants that go on, and do not choose the refused ones again.

        If those that go on are no candidates, the best of the others is chosen.
        """
        self._refused.add(self._at)
        present = window.point.configuration.tenants
        if present in self._table.partitions:
            self._at = self._table.partitions.index(present)
        else:
            self._at = self._most_promising()
        self._level = self._highest(self._z[0])
        self._held = 0

    def _learn(self, window: Window) -> None:
        """Learn from a window at the present point; if it is not steady, from its power only.

        A window in which tenants paused because of the budget counts as if they had not.
        """
        idle_w = float(self._now().power.factors[0]) * self._table.idle_w
        work = 1.0 / (1.0 - window.paused)
        power_w = max(window.power_mean_w, _LEAST_W)
        power_w += max(power_w - idle_w, 0.0) * (work - 1.0)
        rates = tuple(rate * work for rate in window.tenant_throughputs_per_s)
        rate = window.throughput_per_s * work
        if not window.is_steady:
            rates, rate = (), 0.0
        difference = self._add(self._at, self._level, power_w, rates, rate)
        self._estimates.noise(self._level).add(difference)
        self._has_learned = True
        self._held += 1

    def _add(
        self, at: int, level: int, power_w: float, rates_per_s: Sequence[float], total_per_s: float
    ) -> Difference:
        """Correct what is known of a partition by a window at a level.

        Args:
            at: number of the partition.
            level: the level.
            power_w: mean power, W.
            rates_per_s: samples per second of each tenant.
            total_per_s: samples per second of all; 0 if they are not known.

        Returns:
            The difference of the power from what was expected.
        """
        table, known = self._table, self._estimates.of(at)
        self._estimates.add(at, known)
        rate = weighted(self._problem, table.partitions[at], rates_per_s, total_per_s)
        if rate > 0.0:
            known.rate.add(math.log(rate) - float(table.rates[at, level]))
        noise = self._estimates.noise(level).variance
        return known.power.add(level, power_w, float(table.powers_w[at, level]), noise)

    def _move(self, above_w: float | None) -> None:
        """Change the level of the present partition, if the estimates say so.

        Args:
            above_w: power of the last window, if it was above the cap, W.
        """
        highest = self._highest(self._z[0])
        if above_w is not None:
            self._level = max(min(highest, self._in_proportion(above_w)), 0)
        elif highest < self._level:
            self._level = highest
        else:
            self._level = max(self._level, self._highest(self._z[1]))

    def _in_proportion(self, above_w: float) -> int:
        """Return the highest level below the present one that is below the cap in proportion."""
        powers_w = self._table.powers_w[self._at, : self._level]
        scaled_w = powers_w * above_w / self._table.powers_w[self._at, self._level]
        return int((scaled_w <= self._cap_w).sum()) - 1

    def _reconsider(self) -> None:
        """Change the partition, if another one is expected to improve the throughput enough."""
        rates, errors = self._reachable()
        promised = rates - rates[self._at]
        processes = self._table.processes
        is_near = (processes == processes[self._at]) & (promised > -_LOWER)
        gains = promised + np.where(is_near, _HOPE, -_CAUTION) * errors
        best = int(gains.argmax())
        if gains[best] > _GAIN * (1 + self._tried):
            self._at = best
            self._level = self._highest(self._z[0])
            self._held = 0
            self._tried += 1

    def _now(self) -> Partition:
        return self._estimates.of(self._at)

    def _highest(self, z: float) -> int:
        """Return the best level of the present partition; the lowest if all are above the cap."""
        table, power, noise = self._table, self._now().power, self._estimates.variances
        means_w, variances = power.at(table.powers_w[self._at])
        is_below = means_w + z * np.sqrt(variances + noise * means_w**2) <= self._cap_w
        if (above := power.lowest_above(self._cap_w, z, noise)) is not None:
            is_below[above:] = False
        rates = np.where(is_below, table.rates[self._at], -np.inf)
        return int(rates.argmax()) if is_below.any() else 0

    def _most_promising(self) -> int:
        """Return the partition with the most throughput, if all must be loaded."""
        rates, errors = self._reachable()
        return int((rates - _CAUTION * errors).argmax())

    def _reachable(self) -> tuple[Array, Array]:
        """Return the logarithm of each partition's throughput below the cap, and its error."""
        table, estimates = self._table, self._estimates
        factors, biases, parts = estimates.everywhere()
        errors = parts * table.errors
        for at, one in estimates.measured.items():
            factors[at], biases[at], errors[at] = one.power.factors, one.rate.value, 0.0
        powers_w = factors[:, :1] * table.idle_w + factors[:, 1:] * (table.powers_w - table.idle_w)
        is_below = powers_w * (1.0 + self._z[0] * np.sqrt(estimates.variances)) <= self._cap_w
        rates: Array = np.where(is_below, table.rates + biases[:, None], _NEVER).max(axis=1)
        rates[list(self._refused)] = _NEVER
        return rates, errors


def _is_whole(row: MeasuredWindow) -> bool:
    """Return whether a row was measured as the GPU chooses clock and limit, with all figures."""
    return (
        row.status == "ok"
        and not needed(row.configuration)
        and bool(row.power_mean_w and row.throughput_per_s)
    )


def weighted(
    problem: Problem, tenants: Tenants, rates_per_s: Sequence[float], total_per_s: float
) -> float:
    """Return the weighted samples per second of tenants.

    Args:
        problem: has the weights of the models.
        tenants: the tenants.
        rates_per_s: samples per second of each; of another length if they are not known.
        total_per_s: samples per second of all, for unknown rates.
    """
    if len(rates_per_s) != len(tenants):
        return total_per_s
    pairs = zip(tenants, rates_per_s, strict=True)
    return math.fsum(problem.weight(one.model) * rate for one, rate in pairs)


def _degraded(abilities: Abilities, problem: Problem) -> str:
    """Return how the controller works without what it needs."""
    found = []
    if "clock" not in abilities.can:
        if "limit" in abilities.can:
            found.append("clocks cannot be changed: the power limit follows the cap")
        elif "duty" in abilities.can:
            found.append(
                "neither clocks nor limit can be changed: tenants pause for a part of the time, so "
                "that the mean power of a window follows the cap"
            )
        else:
            found.append(
                "only shares and batches can be changed: the power follows the cap in steps"
            )
    if "partition" not in abilities.can:
        found.append("the tenants stay as they are")
    elif "batch" not in abilities.can:
        found.append(f"batches cannot be changed: all are {problem.batches[0]}")
    return "; ".join(found)
