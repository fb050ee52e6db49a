"""Measures time and energy of steps in a window of the training, without disturbing it.

A window begins and ends at the ends of optimizer steps. Only time in the phase ``train`` counts, so
a window goes on after validation and after the writing of a checkpoint, and crosses epochs. All
functions run on the thread of the power limit, and are generators that yield the time to wait until
they are called again, s.
"""

import math
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from energy_callbacks.accounting.metrics.energy_sums import total, whole_window
from energy_callbacks.core.records import Energy

if TYPE_CHECKING:
    from energy_callbacks.accounting.attempt import ActiveAttempt
    from energy_callbacks.accounting.metrics.step_counts import StepCounts
    from energy_callbacks.core.records import Device

POLL_S: Final = 0.1
"""Time between two looks at the training, s."""
# A window must have at least ten values of the sensor, so that the power of its two ends counts for
# at most a few per cent, and at least five of the journal's beats, from which the standard error of
# the step's time is computed.
_SENSOR_PERIODS: Final = 10.0
_LEAST_S: Final = 4.0
# After a change, the sensor's average must contain no time from before, and the card needs some
# time to settle: its clocks follow a new limit within 0.1 s; 0.5 s leaves a margin.
_LEAST_SETTLE_S: Final = 0.5
_RESPONSES: Final = 3.0  # after three time constants, 95 % of a change is seen


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowPlan:
    """How long a window must be.

    Attributes:
        steps: minimum number of optimizer steps.
        duration_s: minimum time in phase ``train``, s.
        settle_s: time after the change that is left out, s.
    """

    steps: int
    duration_s: float
    settle_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What was measured in a window, by one rank.

    Attributes:
        steps: number of optimizer steps.
        duration_s: time in phase ``train``, s.
        step_s_stderr: standard error of the time of a step, s.
        energy_j: energy by UUID of a GPU, J; ``None`` if it has no readings.
        energy_stderr_j: its standard error by UUID, J.
    """

    steps: int
    duration_s: float
    step_s_stderr: float
    energy_j: Mapping[str, float | None]
    energy_stderr_j: Mapping[str, float]


def planned(attempt: "ActiveAttempt", cards: Iterable["Device"], steps: int) -> WindowPlan:
    """Return how long windows must be for the sensors of these cards."""
    sensors = [
        channel.sensor
        for card in cards
        for channel in attempt.timeline.channels(card.key)
        if channel.quantity in ("power", "energy") and channel.sensor is not None
    ]
    span_s = max(((one.period_s or 0.0) + (one.window_s or 0.0) for one in sensors), default=0.0)
    late_s = max(
        ((one.window_s or 0.0) + one.lag_s + _RESPONSES * one.response_s for one in sensors),
        default=0.0,
    )
    return WindowPlan(
        steps=steps,
        duration_s=max(_SENSOR_PERIODS * span_s, _LEAST_S),
        settle_s=max(late_s, _LEAST_SETTLE_S),
    )


def measured(
    attempt: "ActiveAttempt", cards: Sequence["Device"], plan: WindowPlan
) -> Generator[float, None, Window]:
    """Measure one window from now on.

    Returns:
        The window. If the training ends before, the generator is closed.
    """
    steps, recorder = attempt.steps, attempt.recorder
    from_s = attempt.now_s() + plan.settle_s
    while steps.tally.t_s < from_s or not steps.tally.steps:
        yield POLL_S
    tallies = [steps.tally]
    while True:
        yield POLL_S
        if steps.tally.steps > tallies[-1].steps:
            tallies.append(steps.tally)
            if tallies[-1].steps - tallies[0].steps >= plan.steps and len(tallies) > 2:
                if _train_s(attempt, tallies[0], tallies[-1]) >= plan.duration_s:
                    break
    while recorder.settled_s < tallies[-1].t_s:
        yield POLL_S
    return _window(attempt, cards, tallies)


def _window(
    attempt: "ActiveAttempt", cards: Sequence["Device"], tallies: Sequence["StepCounts"]
) -> Window:
    first, last = tallies[0], tallies[-1]
    energies = {
        card.uuid or card.key: whole_window(_energy(attempt, card.key, first.t_s, last.t_s))
        for card in cards
    }
    return Window(
        steps=last.steps - first.steps,
        duration_s=_train_s(attempt, first, last),
        step_s_stderr=_step_s_stderr(attempt, tallies),
        energy_j={uuid: one.energy_j for uuid, one in energies.items()},
        energy_stderr_j={uuid: _stderr_j(one) for uuid, one in energies.items()},
    )


def _energy(attempt: "ActiveAttempt", key: str, start_s: float, end_s: float) -> Energy:
    spans = attempt.recorder.trained(start_s, end_s)
    return total(
        [attempt.timeline.energy(key, span.start_s, span.end_s) for span in spans],
        [span.end_s - span.start_s for span in spans],
    )


def _stderr_j(energy: Energy) -> float:
    """Return the standard error of an energy, with the bound (95 %) of the errors at its edges."""
    return math.hypot(energy.stderr_j, energy.edge_j / 1.96)


def _train_s(attempt: "ActiveAttempt", start: "StepCounts", end: "StepCounts") -> float:
    spans = attempt.recorder.trained(start.t_s, end.t_s)
    return math.fsum(span.end_s - span.start_s for span in spans)


def _step_s_stderr(attempt: "ActiveAttempt", tallies: Sequence["StepCounts"]) -> float:
    """Return the standard error of the mean time of a step, from the parts of the window.

    It is that of a ratio of two sums over the parts: time and steps (Cochran, Sampling Techniques,
    section 6.3).
    """
    parts = [
        (_train_s(attempt, start, end), end.steps - start.steps)
        for start, end in zip(tallies, tallies[1:], strict=False)
    ]
    steps = sum(count for _, count in parts)
    step_s = math.fsum(duration_s for duration_s, _ in parts) / steps
    residuals = math.fsum((duration_s - step_s * count) ** 2 for duration_s, count in parts)
    return math.sqrt(residuals * len(parts) / (len(parts) - 1)) / steps
