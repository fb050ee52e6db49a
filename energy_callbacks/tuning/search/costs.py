"""Costs of trials, the curves through them, and the variance between trials of the same size."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from energy_callbacks.tuning.search.curve import Array, Curves, drawn_curves
from energy_callbacks.tuning.search.trial import Trial

# Possible values of ``factor`` in ``curve.py``. On an H100, trials of 1.5 to 2.5 s whose steps
# waited for the host varied by two to three times the error that they stated (docs/h200.md).
_FACTORS: Final = (1.0, 2.0, 4.0, 8.0)


def is_known(trial: Trial, energy_weight: float) -> bool:
    """Return whether a trial ran and, if ``energy_weight`` is not 0, its energy is known."""
    return trial.status == "ok" and (not energy_weight or (trial.j_per_sample or 0.0) > 0.0)


def _cost(trial: Trial, energy_weight: float) -> tuple[float, float]:
    """Return (J per sample)^weight (s per sample)^(1 - weight), and its relative standard error."""
    assert trial.samples_per_s
    cost = trial.samples_per_s ** (energy_weight - 1.0)
    error = (1.0 - energy_weight) * trial.time_error
    if energy_weight:
        assert trial.j_per_sample
        cost *= trial.j_per_sample**energy_weight
        error += energy_weight * trial.energy_error
    return cost, error


def fitted_curves(
    trials: Sequence[Trial],
    energy_weight: float,
    at: Sequence[int] = (),
    factors: Sequence[float] = (1.0,),
) -> Curves:
    """Draw curves of the cost of a step through trials with a known cost, evaluated at ``at``.

    A search leaves ``factors`` out: with several, it finds sizes that are no better (ADR 0031).
    """
    sizes = [trial.size for trial in trials]
    costs, errors = np.array([_cost(trial, energy_weight) for trial in trials]).T
    return drawn_curves(sizes, costs * sizes, errors, at, factors)


def with_spread(trials: Iterable[Trial]) -> list[Trial]:
    """Add the variance between trials of the same size to the random errors of trials.

    Without it, the errors hold for the measured steps only, and not for another trial of the same
    size. It is estimated from all trials together, for time and for energy.
    """
    trials = list(trials)
    time, energy = (_added_errors(trials, weight) for weight in (0.0, 1.0))
    return [_widened(*both) for both in zip(trials, time, energy, strict=True)]


def _added_errors(trials: Sequence[Trial], energy_weight: float) -> list[float]:
    """Return the relative standard deviation that each trial lacks; 0 if its cost is unknown."""
    known = [trial for trial in trials if is_known(trial, energy_weight)]
    if not known:
        return [0.0] * len(trials)
    errors = np.array([_cost(trial, energy_weight)[1] for trial in known])
    curves = fitted_curves(known, energy_weight, factors=_FACTORS)
    added = np.sqrt((rms(curves.factors) ** 2 - 1.0) * errors**2 + rms(curves.spreads) ** 2)
    found = iter(added.tolist())
    return [next(found) if is_known(trial, energy_weight) else 0.0 for trial in trials]


def _widened(trial: Trial, time: float, energy: float) -> Trial:
    """Add relative standard deviations of time and energy to the errors of a trial."""
    stderr_j = math.hypot(trial.energy.stderr_j, energy * (trial.energy.energy_j or 0.0))
    return replace(
        trial,
        stderr_s=math.hypot(trial.stderr_s, time * trial.duration_s),
        energy=replace(trial.energy, stderr_j=stderr_j),
    )


def rms(values: Array) -> float:
    """Return the root of the mean square."""
    return float(np.sqrt(np.mean(values**2)))
