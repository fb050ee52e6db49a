"""Costs of trials, the curves through them, and the variance between trials of the same size."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from energy_callbacks.tuning.search.curve import Array, Curves, drawn_curves
from energy_callbacks.tuning.search.trial import Trial


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


def fitted_curves(trials: Sequence[Trial], energy_weight: float, at: Sequence[int] = ()) -> Curves:
    """Draw curves of the cost of a step through trials with a known cost, evaluated at ``at``."""
    sizes = [trial.size for trial in trials]
    costs, errors = np.array([_cost(trial, energy_weight) for trial in trials]).T
    return drawn_curves(sizes, costs * sizes, errors, at)


def with_spread(trials: Iterable[Trial]) -> list[Trial]:
    """Add the variance between trials of the same size to the random errors of trials.

    Without it, the errors hold for the measured steps only, and not for another trial of the same
    size. It is estimated from all trials together, for time and for energy.
    """
    trials = list(trials)
    time, energy = (_spread(trials, weight) for weight in (0.0, 1.0))
    return [_widened(trial, time, energy) for trial in trials]


def _spread(trials: Iterable[Trial], energy_weight: float) -> float:
    """Return the relative standard deviation between trials of the same size."""
    known = [trial for trial in trials if is_known(trial, energy_weight)]
    return rms(fitted_curves(known, energy_weight).spreads) if known else 0.0


def _widened(trial: Trial, time: float, energy: float) -> Trial:
    """Add relative standard deviations of time and energy to the errors of a trial."""
    stderr_j = math.hypot(trial.energy.stderr_j, energy * (trial.energy.energy_j or 0.0))
    return replace(
        trial,
        stderr_s=math.hypot(trial.stderr_s, time * trial.duration_s),
        energy=replace(trial.energy, stderr_j=stderr_j),
    )


def rms(spreads: Array) -> float:
    """Return the root of the mean square."""
    return float(np.sqrt(np.mean(spreads**2)))
