"""Tries neighbours of the present tenants while requests are served, and keeps better ones.

The tenants that are tried load beside the present ones, which serve meanwhile. A neighbour has
another batch, 5 % of the share of one tenant moved to another one, two tenants merged, or one split
in two. Of the neighbours that are predicted to hold the cap, the one with the most throughput is
tried; it is kept if it is better in measured windows, and none of them is above the cap.
"""

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import permutations
from typing import Final

from energy_callbacks.inference.control.protocols import (
    Abilities,
    Controller,
    Need,
    OperatingPoint,
    Window,
)
from energy_callbacks.inference.planner.problem import BATCHES, STEP_PCT
from energy_callbacks.inference.protocols import PredictionModel
from energy_callbacks.inference.records import Tenant

Tenants = tuple[Tenant, ...]
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
        model: predicts neighbours.
        batches: batches that may be used.
        weight: weight of a sample of a model.

    Attributes:
        tried: what was tried, as text.
    """

    def __init__(
        self,
        inner: Controller,
        model: PredictionModel,
        *,
        batches: Sequence[int] = BATCHES,
        weight: Callable[[str], float] = lambda _: 1.0,
    ) -> None:
        self._inner, self._model = inner, model
        self._batches, self._weight = sorted(batches), weight
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

    def start(self, cap_w: float, abilities: Abilities) -> OperatingPoint:
        """See ``Controller``."""
        point = self._inner.start(cap_w, abilities)
        self.degraded = self._inner.degraded
        if not {"partition", "batch"} <= abilities.can:
            self.degraded = "; ".join(filter(None, (self.degraded, "the shadow tries nothing")))
            self._waited = _PATIENCE
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
        if len(self._windows) >= _WINDOWS and self._begin(point):
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
        return self._shown

    def _drop(self) -> None:
        self.tried.append(f"{_text(self._kept or ())}: given up, a window was above the cap")
        self._kept = None
        self._windows = []

    def _collect(self, window: Window, *, is_same: bool) -> None:
        is_calm = window.is_steady and window.power_mean_w <= self._cap_w and is_same
        self._windows = [*self._windows, window] if is_calm else []

    def _begin(self, point: OperatingPoint) -> bool:
        """Begin to try the best neighbour; return whether there is one."""
        shown = self._shown
        power_w = statistics.fmean(one.power_mean_w for one in self._windows)
        present = shown.configuration.tenants
        predicted = self._model.predict(shown.configuration)
        correction = power_w / predicted.power_w.value / point.duty
        best, gain = None, 0.0
        others = [one for one in neighbours(present, self._batches) if one not in self._known]
        points = [replace(shown.configuration, tenants=tenants) for tenants in others]
        for tenants, other in zip(others, self._model.predict_many(points), strict=True):
            value = self._predicted(tenants, other.tenant_throughputs_per_s)
            value /= self._predicted(present, predicted.tenant_throughputs_per_s)
            holds = correction * other.power_w.value * point.duty <= self._cap_w
            if holds and value > 1.0 + max(gain, _BETTER):
                best, gain = tenants, value - 1.0
        if best is None:
            self._windows = []
            return False
        self._trial, self._waited = best, 0
        self._known.add(best)
        self._base = statistics.fmean(self._rate(one) for one in self._windows)
        self._windows = []
        return True

    def _tried_for(self, window: Window, point: OperatingPoint) -> OperatingPoint:
        trial = self._trial
        assert trial is not None
        if window.point.configuration.tenants == trial and window.is_steady:
            self._windows.append(window)
            if window.power_mean_w > self._cap_w:
                return self._ended(point, "a window was above the cap", is_kept=False)
        else:
            self._waited += 1
            if self._waited > _PATIENCE:
                return self._ended(point, "it was not steady", is_kept=False)
        if len(self._windows) < _WINDOWS:
            return self._shown
        rate = statistics.fmean(self._rate(one) for one in self._windows)
        gain = rate / max(self._base, 1e-9) - 1.0
        return self._ended(point, f"{100.0 * gain:+.1f} % throughput", is_kept=gain > _BETTER)

    def _ended(self, point: OperatingPoint, what: str, *, is_kept: bool) -> OperatingPoint:
        trial, self._trial = self._trial, None
        self._windows = []
        self.tried.append(f"{_text(trial or ())}: {what}, {'kept' if is_kept else 'not kept'}")
        if is_kept:
            self._kept = trial
        self._point = point
        return self._shown

    def _predicted(self, tenants: Tenants, rates: Sequence[tuple[float, float, float]]) -> float:
        return math.fsum(
            self._weight(one.model) * rate[0] for one, rate in zip(tenants, rates, strict=True)
        )

    def _rate(self, window: Window) -> float:
        tenants, rates = window.point.configuration.tenants, window.tenant_throughputs_per_s
        if len(tenants) != len(rates):
            return window.throughput_per_s
        pairs = zip(tenants, rates, strict=True)
        return math.fsum(self._weight(one.model) * rate for one, rate in pairs)


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


def _text(tenants: Tenants) -> str:
    kinds = dict.fromkeys(tenants)
    return " + ".join(
        f"{tenants.count(one)} x {one.model} {one.share_pct:g} % b={one.batch}" for one in kinds
    )
