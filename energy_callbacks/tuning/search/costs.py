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


def expected_errors(
    trials: Sequence[Trial], energy_weight: float, curves: Curves, sizes: Sequence[int]
) -> Array:
    """Return the relative standard errors that further trials would have, (sizes,).

    They are interpolated between the errors of trials with a known cost, which are those that they
    state and what is missing in them.
    """
    stated = {trial.size: _cost(trial, energy_weight)[1] for trial in trials}
    tried, errors = np.array(sorted(stated.items())).T
    at = np.interp(np.log(sizes), np.log(tried), errors)
    return np.asarray(np.hypot(at, curves.added_errors(at)))


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
    added = iter(fitted_curves(known, energy_weight).added_errors(errors))
    return [float(next(added)) if is_known(trial, energy_weight) else 0.0 for trial in trials]


def _widened(trial: Trial, time: float, energy: float) -> Trial:
    """Add relative standard deviations of time and energy to the errors of a trial."""
    stderr_j = math.hypot(trial.energy.stderr_j, energy * (trial.energy.energy_j or 0.0))
    return replace(
        trial,
        stderr_s=math.hypot(trial.stderr_s, time * trial.duration_s),
        energy=replace(trial.energy, stderr_j=stderr_j),
    )
