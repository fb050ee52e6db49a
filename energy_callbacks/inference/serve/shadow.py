"""Tries neighbours of the present tenants while requests are served, and keeps better ones.

The tenants that are tried load beside the present ones, which serve meanwhile. A neighbour has
another batch, 5 % of the share of one tenant moved to another one, two tenants merged, or one split
in two. Of the neighbours that are predicted to hold the cap and the other limits, the one with the
most throughput is tried; it is kept if it is better in measured windows, and none of them is above
the cap.
"""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import permutations
from typing import Final

from energy_callbacks.inference.control.model_inverse import weighted
from energy_callbacks.inference.control.protocols import (
    Abilities,
    Controller,
    Need,
    OperatingPoint,
    Tenants,
    Window,
)
from energy_callbacks.inference.planner.judge import judge
from energy_callbacks.inference.planner.problem import STEP_PCT, Problem
from energy_callbacks.inference.protocols import PredictionModel
from energy_callbacks.inference.records import Configuration, Tenant
from energy_callbacks.inference.serve.server import tenants_text

# Windows of a comparison. The noise of throughput is 0.5 % (``control/model_inverse.py``), so that
# the difference of two means of five windows has a standard deviation of 0.3 %.
_WINDOWS: Final = 5
# What is kept must be this much better: three of these standard deviations.
_BETTER: Final = 0.01
# A trial is given up after this many windows that are not steady: the tenants do not load.
_PATIENCE: Final = 120
# Batches at most this many steps from the present one are tried (PctoDL's shadow optimizer).
_BATCH_STEPS: Final = 3


class ShadowTuner:
    """A controller that improves the tenants which another controller has chosen.

    Args:
        inner: the controller; it goes on to hold the cap.
        problem: batches that may be used, weights, and limits; its cap and settings are not used.
        model: predicts neighbours.

    Attributes:
        tried: what was tried, as text.
    """

    def __init__(self, inner: Controller, problem: Problem, model: PredictionModel) -> None:
        self._inner, self._model = inner, model
        self._problem = replace(problem, cap_w=None, objective="throughput")
        self.name = f"{inner.name}+shadow"
        own: frozenset[Need] = frozenset({"partition", "batch"})
        self.needs = inner.needs | own
        self.degraded = inner.degraded
        self.tried: list[str] = []
        self._cap_w = math.inf
        self._point: OperatingPoint | None = None  # of the inner controller
        self._kept: Tenants | None = None  # what serves instead of the inner controller's tenants
        self._trial: Tenants | None = None
        self._known: set[Tenants] = set()
        self._windows: list[Window] = []
        self._base = 0.0
        self._waited = 0
        self._lacking = ""

    def start(self, cap_w: float, abilities: Abilities) -> OperatingPoint:
        """See ``Controller``."""
        point = self._inner.start(cap_w, abilities)
        if not {"partition", "batch"} <= abilities.can:
            self._lacking = "tenants cannot be changed: the shadow tries nothing"
        self._cap_w = cap_w
        return self._followed(point)

    def cap_changed(self, cap_w: float) -> OperatingPoint:
        """See ``Controller``."""
        self._cap_w = cap_w
        self._kept = self._trial = None
        self._known = set()
        self._windows = []
        return self._followed(self._inner.cap_changed(cap_w))

    def step(self, window: Window) -> OperatingPoint:
        """See ``Controller``."""
        assert self._point is not None
        if self._trial is not None:
            return self._tried_for(window, self._point)
        if window.power_mean_w > self._cap_w and self._kept is not None and window.is_steady:
            self._drop()
        seen = window
        if window.point.configuration.tenants == self._kept:
            seen = replace(window, point=self._point, tenant_throughputs_per_s=())
        before = self._point
        point = self._inner.step(seen)
        self._collect(window, is_same=point == before)
        if len(self._windows) >= _WINDOWS and not self._lacking and self._begin():
            self._point = point
            return self._shown
        return self._followed(point)

    @property
    def _shown(self) -> OperatingPoint:
        assert self._point is not None
        tenants = self._trial or self._kept or self._point.configuration.tenants
        configuration = replace(self._point.configuration, tenants=tenants)
        return replace(self._point, configuration=configuration)

    def _followed(self, point: OperatingPoint) -> OperatingPoint:
        """Return the inner controller's point, with the tenants that are kept instead of its."""
        old = self._point and self._point.configuration.tenants
        if point.configuration.tenants != old:
            self._kept = None
        self._point = point
        self.degraded = "; ".join(filter(None, (self._inner.degraded, self._lacking)))
        return self._shown

    def _drop(self) -> None:
        self.tried.append(f"{_text(self._kept)}: given up, a window was above the cap")
        self._kept = None
        self._windows = []

    def _collect(self, window: Window, *, is_same: bool) -> None:
        is_calm = window.is_steady and window.power_mean_w <= self._cap_w and is_same
        self._windows = [*self._windows, window][-_WINDOWS:] if is_calm else []

    def _begin(self) -> bool:
        """Begin to try the best neighbour; return whether there is one."""
        windows, self._windows = self._windows, []
        shown = self._shown.configuration
        near = neighbours(shown.tenants, sorted(self._problem.batches))
        others = [replace(shown, tenants=one) for one in near if one not in self._known]
        present, *judged = judge(self._problem, self._model, [shown, *others])
        # Pauses and the error of the prediction are the same for the neighbours.
        power_w = statistics.fmean(one.power_mean_w for one in windows)
        most_w = self._cap_w * present.prediction.power_w.value / power_w
        better = [
            one
            for one in judged
            if one.excess == 0.0
            and one.prediction.power_w.value <= most_w
            and one.value > (1.0 + _BETTER) * present.value
        ]
        if not better:
            return False
        self._trial = max(better, key=lambda one: one.value).configuration.tenants
        self._waited = 0
        self._known.add(self._trial)
        self._base = statistics.fmean(map(self._rate, windows))
        return True

    def _tried_for(self, window: Window, point: OperatingPoint) -> OperatingPoint:
        trial = self._trial
        assert trial is not None
        if window.refused == trial:
            return self._ended(point, "it cannot be loaded", is_kept=False)
        is_serving = window.point.configuration.tenants == trial
        if is_serving and window.power_mean_w > self._cap_w:
            return self._ended(point, "a window was above the cap", is_kept=False)
        if is_serving and window.is_steady:
            self._windows.append(window)
        else:
            self._waited += 1
            if self._waited > _PATIENCE:
                return self._ended(point, "it was not steady", is_kept=False)
        if len(self._windows) < _WINDOWS:
            return self._shown
        rate = statistics.fmean(map(self._rate, self._windows))
        gain = rate / max(self._base, 1e-9) - 1.0
        return self._ended(point, f"{100.0 * gain:+.1f} % throughput", is_kept=gain > _BETTER)

    def _ended(self, point: OperatingPoint, what: str, *, is_kept: bool) -> OperatingPoint:
        trial, self._trial = self._trial, None
        self._windows = []
        self.tried.append(f"{_text(trial)}: {what}, {'kept' if is_kept else 'not kept'}")
        if is_kept:
            self._kept = trial
        self._point = point
        return self._shown

    def _rate(self, window: Window) -> float:
        return weighted(
            self._problem,
            window.point.configuration.tenants,
            window.tenant_throughputs_per_s,
            window.throughput_per_s,
        )


def neighbours(tenants: Tenants, batches: Sequence[int]) -> Iterator[Tenants]:
    """Return the neighbours of some tenants.

    Args:
        tenants: the tenants.
        batches: batches that may be used, in ascending order.
    """
    found = [
        *_other_batches(tenants, batches),
        *_moved_shares(tenants),
        *_merged(tenants),
        *_split(tenants),
    ]
    yield from dict.fromkeys(one for one in found if one != tenants)


def _other_batches(tenants: Tenants, batches: Sequence[int]) -> Iterator[Tenants]:
    for kind in dict.fromkeys(tenants):
        near = min(range(len(batches)), key=lambda at: abs(batches[at] - kind.batch))
        for batch in batches[max(near - _BATCH_STEPS, 0) : near + _BATCH_STEPS + 1]:
            other = replace(kind, batch=batch)
            yield tuple(other if one == kind else one for one in tenants)


def _moved_shares(tenants: Tenants) -> Iterator[Tenants]:
    for giver, taker in permutations(range(len(tenants)), 2):
        if tenants[giver].share_pct > STEP_PCT:
            changed = list(tenants)
            changed[giver] = _with_share(tenants[giver], tenants[giver].share_pct - STEP_PCT)
            changed[taker] = _with_share(tenants[taker], tenants[taker].share_pct + STEP_PCT)
            yield tuple(changed)


def _merged(tenants: Tenants) -> Iterator[Tenants]:
    """Merge the two tenants of a model with the smallest shares."""
    for model in dict.fromkeys(one.model for one in tenants):
        own = sorted((one for one in tenants if one.model == model), key=lambda one: one.share_pct)
        if len(own) >= 2:
            rest = list(tenants)
            rest.remove(own[0])
            rest.remove(own[1])
            yield (*rest, _with_share(own[1], own[0].share_pct + own[1].share_pct))


def _split(tenants: Tenants) -> Iterator[Tenants]:
    """Split the tenant with the largest share in two."""
    largest = max(tenants, key=lambda one: one.share_pct)
    half = math.floor(largest.share_pct / 2.0 / STEP_PCT) * STEP_PCT
    if half > 0:
        rest = list(tenants)
        rest.remove(largest)
        other = largest.share_pct - half
        yield (*rest, _with_share(largest, float(half)), _with_share(largest, other))


def _with_share(tenant: Tenant, share_pct: float) -> Tenant:
    return replace(tenant, share_pct=share_pct)


def _text(tenants: Tenants | None) -> str:
    return tenants_text(Configuration(tenants=tenants or ()))
