"""Writes the result of a search to the journal: the curve, the choice, and what it has saved."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from energy_callbacks.core.records import NORMAL_95
from energy_callbacks.powercap.search.trial import Trial
from energy_callbacks.report.model.power_limit import Estimate, PowerLimitSearch, PowerPoint

if TYPE_CHECKING:
    from energy_callbacks.accounting.attempt import ActiveAttempt
    from energy_callbacks.powercap.options import OptimizerOptions
    from energy_callbacks.powercap.search.search import Answer

_Mean = tuple[float, float]  # with its standard error


class Results:
    """Writes results to the journal of rank 0.

    Args:
        optimizer: the settings.
        attempt: receives the results as a profile, which replaces the one before.
    """

    def __init__(self, optimizer: "OptimizerOptions", attempt: "ActiveAttempt") -> None:
        self._optimizer = optimizer
        self._attempt = attempt
        self._chosen: float | None = None
        self._first_step = 0

    def record(self, answer: "Answer", trials: Sequence[Trial]) -> None:
        """Write a result.

        Args:
            answer: the answer of the search.
            trials: all windows, also those at the chosen setting after the search.
        """
        done = self._attempt.steps.tally.steps
        if answer.chosen != self._chosen:
            self._chosen, self._first_step = answer.chosen, done
        found = _at(trials, answer.found)
        chosen = _at(trials, answer.chosen)
        is_measured = bool(found and chosen)
        steps = done - self._first_step
        slowdown, saving = answer.slowdown, answer.saving
        if is_measured:
            slowdown, saving = measured_effect(found, chosen)
        # The search begins with a window at ``found``.
        found_j = _mean(found)[1][0] if found else 0.0
        result = PowerLimitSearch(
            knob=self._optimizer.knob,
            objective=str(self._optimizer),
            found=answer.found,
            chosen=answer.chosen,
            windows=answer.windows,
            slowdown=slowdown,
            saving=saving,
            is_measured=is_measured,
            saved_j=_times(saving, steps * found_j),
            steps=steps,
            curve=answer.curve,
            measured=tuple(
                _point(value, _at(trials, value)) for value in sorted({t.value for t in trials})
            ),
        )
        self._attempt.record_profile("power_limit", asdict(result))


def measured_effect(found: Sequence[Trial], chosen: Sequence[Trial]) -> tuple[Estimate, Estimate]:
    """Return slowdown and saving, from the windows at two settings.

    Args:
        found: windows at the setting that was found.
        chosen: windows at the chosen setting.
    """
    if found[0].value == chosen[0].value:
        nothing = Estimate(value=0.0, low=0.0, high=0.0)
        return nothing, nothing
    slowdown, saving = map(_relative, _mean(chosen), _mean(found))
    return slowdown, Estimate(value=-saving.value, low=-saving.high, high=-saving.low)


def _relative(after: _Mean, before: _Mean) -> Estimate:
    ratio = after[0] / before[0]
    error = NORMAL_95 * ratio * math.hypot(after[1] / after[0], before[1] / before[0])
    return Estimate(value=ratio - 1.0, low=ratio - 1.0 - error, high=ratio - 1.0 + error)


def _mean(trials: Sequence[Trial]) -> tuple[_Mean, _Mean]:
    """Return time and energy of a step, each with its standard error."""
    times = [(one.step_s, one.step_s_stderr) for one in trials]
    energies = [(one.step_j, one.step_j_stderr) for one in trials]
    return _mean_of(times), _mean_of(energies)


def _mean_of(values: Sequence[_Mean]) -> _Mean:
    """Return the mean and its standard error: the larger of the stated one and of the scatter.

    The stated errors are not averaged out: those from edges of phases are the same in all windows.
    """
    count = len(values)
    mean = math.fsum(value for value, _ in values) / count
    stated = math.fsum(stderr for _, stderr in values) / count
    if count < 3:
        return mean, stated
    variance = math.fsum((value - mean) ** 2 for value, _ in values) / (count - 1)
    return mean, max(stated, math.sqrt(variance / count))


def _at(trials: Sequence[Trial], value: float) -> list[Trial]:
    return [trial for trial in trials if trial.value == value]


def _point(value: float, trials: Sequence[Trial]) -> PowerPoint:
    step_s, step_j = _mean(trials)
    return PowerPoint(value=value, step_s=_interval(*step_s), step_j=_interval(*step_j))


def _interval(value: float, stderr: float) -> Estimate:
    return Estimate(value=value, low=value - NORMAL_95 * stderr, high=value + NORMAL_95 * stderr)


def _times(estimate: Estimate, factor: float) -> Estimate:
    low, high = factor * estimate.low, factor * estimate.high
    return Estimate(value=factor * estimate.value, low=low, high=high)
