"""The search: which setting is measured next, and the answer.

The first window is at the setting that was found. Each further window is at the setting that tells
most about the best setting; the last one is at the best setting itself, which verifies it. There
are two windows for every three power limits that a sweep in steps of 25 W would measure, at least
four and at most six.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.ma  # some functions of NumPy import it, which must not be on a thread

from energy_callbacks.powercap.search.card_model import Array, model_of
from energy_callbacks.powercap.search.objectives import Objective, regrets
from energy_callbacks.powercap.search.posterior import Curves, drawn_curves
from energy_callbacks.powercap.search.trial import Trial
from energy_callbacks.powercap.settings import KnobRange
from energy_callbacks.report.model.power_limit import Estimate, PowerPoint

# Largest number of settings at which curves are evaluated.
_POINTS: Final = 101
# Distance between power limits in the sweep of Zeus, W; the number of windows relates to it.
_SWEEP_W: Final = 25.0
_FEWEST, _MOST = 4, 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The result of a search, estimated from all windows.

    Attributes:
        found: the setting that was found before the search.
        chosen: the best setting.
        windows: number of windows.
        slowdown: relative increase of the duration of a step; 0.05 for 5 %.
        saving: relative decrease of the energy of a step; 0.1 for 10 %.
        curve: time and energy over all settings, in ascending order of the setting.
    """

    found: float
    chosen: float
    windows: int
    slowdown: Estimate
    saving: Estimate
    curve: tuple[PowerPoint, ...]


class PowerSearch:
    """Finds the best setting of a knob in a few windows.

    Args:
        objective: what the best setting is.
        settings: the knob and its range.
        found: the setting before the search.
        cards: number of cards whose energies are added in the trials.
    """

    def __init__(
        self, objective: Objective, settings: KnobRange, *, found: float, cards: int = 1
    ) -> None:
        self._objective = objective
        self._settings = settings
        self._found = found
        self._cards = cards
        self._values = _values(settings, found)
        self._trials: list[Trial] = []
        self._curves: Curves | None = None
        self._windows = _windows(settings)

    def next_value(self) -> float | None:
        """Return the setting of the next window; ``None`` if the search is finished."""
        if not self._trials:
            return self._found
        if len(self._trials) >= self._windows:
            return None
        is_last = len(self._trials) == self._windows - 1
        curves = self._fitted()
        return float(
            self._values[self._best(curves) if is_last else self._most_informative(curves)]
        )

    def add(self, trial: Trial) -> None:
        """Add the result of a window; its setting may differ from the one that was asked for."""
        self._trials.append(trial)
        self._curves = None

    def reopen(self, trial: Trial) -> None:
        """Begin again, because throughput or power has drifted.

        Args:
            trial: a window at the present setting, measured after the drift; earlier ones no
                longer apply.
        """
        self._trials = []
        self.add(trial)

    def answer(self) -> Answer:
        """Return the best setting, what it changes, and the curves.

        Raises:
            RuntimeError: if no window has been added.
        """
        curves = self._fitted()
        best = self._best(curves)
        return Answer(
            found=self._found,
            chosen=float(self._values[best]),
            windows=len(self._trials),
            slowdown=_estimate(curves.step_s[:, best] / curves.step_s[:, curves.found] - 1.0),
            saving=_estimate(1.0 - curves.step_j[:, best] / curves.step_j[:, curves.found]),
            curve=_points(curves),
        )

    def _fitted(self) -> Curves:
        if not self._trials:
            raise RuntimeError("the search has no window yet; call add() first")
        if self._curves is None:
            power_w = self._trials[0].power_w
            model = model_of(self._settings, cards=self._cards, power_w=power_w)
            found = int(np.searchsorted(self._values, self._found))
            self._curves = drawn_curves(model, self._trials, self._values, found)
        return self._curves

    def _best(self, curves: Curves) -> int:
        """Return the index of the setting with the least expected regret."""
        return int(regrets(self._objective, curves).mean(axis=0).argmin())

    def _most_informative(self, curves: Curves) -> int:
        """Return the index of the setting whose window tells most about the best setting.

        It lowers the variance of the logarithm of the best setting most, if that depends linearly
        on the logarithms of time and energy in the window.
        """
        best = np.log(self._values[regrets(self._objective, curves).argmin(axis=1)])
        best = best - best.mean()
        logs = np.log([curves.step_s, curves.step_j])
        logs = logs - logs.mean(axis=1, keepdims=True)
        covariances = np.einsum("iam,jam->mij", logs, logs) / len(best)
        covariances += np.eye(2) * self._error() ** 2
        shared = np.einsum("iam,a->mi", logs, best) / len(best)
        solved = np.linalg.solve(covariances, shared[:, :, None])[:, :, 0]
        return int((shared * solved).sum(axis=1).argmax())

    def _error(self) -> float:
        """Return the relative error that a window is expected to have."""
        return max(
            1e-3,
            *(max(t.step_s_stderr / t.step_s, t.step_j_stderr / t.step_j) for t in self._trials),
        )


def _values(settings: KnobRange, found: float) -> Array:
    """Return the settings to choose from, in ascending order; limits and clocks are integers."""
    if settings.steps:
        thinned = np.linspace(0, len(settings.steps) - 1, _POINTS).round().astype(int)
        values = np.array(settings.steps)[np.unique(thinned)]
    else:
        values = np.linspace(settings.lowest, settings.highest, _POINTS)
        if settings.knob != "duty":
            values[1:-1] = values[1:-1].round()
    return np.unique([*values, found])


def _windows(settings: KnobRange) -> int:
    if settings.knob == "limit":
        sweep = int((settings.highest - settings.lowest) / _SWEEP_W) + 1
    else:
        sweep = len(settings.steps) or _POINTS
    return min(max(2 * sweep // 3, _FEWEST), _MOST)


def _points(curves: Curves) -> tuple[PowerPoint, ...]:
    return tuple(
        PowerPoint(value=float(value), step_s=_estimate(step_s), step_j=_estimate(step_j))
        for value, step_s, step_j in zip(
            curves.values, curves.step_s.T, curves.step_j.T, strict=True
        )
    )


def _estimate(draws: Array) -> Estimate:
    low, high = np.quantile(draws, [0.025, 0.975])
    return Estimate(value=float(draws.mean()), low=float(low), high=float(high))
