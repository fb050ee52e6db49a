"""Measures time and energy of steps in a window of the training, without disturbing it.

A window begins and ends at the ends of optimizer steps. Only time in the phase ``train`` counts, so
a window goes on after validation and after the writing of a checkpoint, and crosses epochs. All
functions run on the thread of the power limit, and are generators that yield the time to wait until
they are called again, s.
"""

import itertools
import math
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from energy_callbacks.accounting.metrics.energy_sums import total, whole_window
from energy_callbacks.core.records import NORMAL_95, Energy

if TYPE_CHECKING:
    from energy_callbacks.accounting.attempt import ActiveAttempt
    from energy_callbacks.accounting.metrics.step_counts import StepCounts
    from energy_callbacks.core.records import Device

POLL_S: Final = 0.25
"""Time between two looks at the training, s."""
# A window must have at least ten values of the sensor, so that the power of its two ends counts for
# at most a few per cent, and at least five of the journal's beats, from which the standard error of
# the step's time is computed.
_SENSOR_PERIODS: Final = 10.0
_LEAST_S: Final = 4.0
# After a change, the sensor's average must contain no time from before, and the card needs some
# time to settle: its clocks follow a new limit within 0.1 s; 0.5 s leaves a margin.
_LEAST_SETTLE_S: Final = 0.5
# Many drivers update their values every 0.1 s, and do not say so.
_LEAST_EDGE_S: Final = 0.1
# The edges are left out of a span of phase ``train`` that is at least this many times as long.
_LONG: Final = 4.0
_RESPONSES: Final = 3.0  # after three time constants, 95 % of a change is seen


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowPlan:
    """How long a window must be.

    Attributes:
        steps: minimum number of optimizer steps.
        duration_s: minimum time in phase ``train``, s.
        settle_s: time after the change that is left out, s.
        edge_s: time at both ends of each span in phase ``train`` in which a value of the sensor may
            contain power of another phase, s.
    """

    steps: int
    duration_s: float
    settle_s: float
    edge_s: float


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
        edge_s=max(span_s, late_s, _LEAST_EDGE_S),
    )


def warmed_up(attempt: "ActiveAttempt", plan: WindowPlan) -> Generator[float, None, None]:
    """Wait for the length of a window: in it, libraries choose kernels and caches fill."""
    while attempt.steps.tally.steps < plan.steps:
        yield POLL_S
    until_s = attempt.now_s() + plan.duration_s
    while attempt.now_s() < until_s:
        yield POLL_S


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
    while not _is_enough(attempt, tallies, plan):
        yield POLL_S
        if steps.tally.steps > tallies[-1].steps:
            tallies.append(steps.tally)
    while recorder.settled_s < tallies[-1].t_s:
        yield POLL_S
    return _window(attempt, cards, tallies, plan.edge_s)


def _is_enough(attempt: "ActiveAttempt", tallies: Sequence["StepCounts"], plan: WindowPlan) -> bool:
    first, last = tallies[0], tallies[-1]
    has_steps = len(tallies) > 2 and last.steps - first.steps >= plan.steps
    return has_steps and _train_s(attempt, first, last) >= plan.duration_s


def _window(
    attempt: "ActiveAttempt",
    cards: Sequence["Device"],
    tallies: Sequence["StepCounts"],
    edge_s: float,
) -> Window:
    first, last = tallies[0], tallies[-1]
    energies = {
        card.uuid or card.key: _energy(attempt, card.key, (first.t_s, last.t_s), edge_s)
        for card in cards
    }
    return Window(
        steps=last.steps - first.steps,
        duration_s=_train_s(attempt, first, last),
        step_s_stderr=_step_s_stderr(attempt, tallies),
        energy_j={uuid: one.energy_j for uuid, one in energies.items()},
        energy_stderr_j={uuid: one.resolution_j / NORMAL_95 for uuid, one in energies.items()},
    )


def _energy(
    attempt: "ActiveAttempt", key: str, window_s: tuple[float, float], edge_s: float
) -> Energy:
    """Return the energy of a card in phase ``train``, from the power away from the edges.

    The power of validation would change the energies of many short epochs all in the same way.
    """
    spans = [(span.start_s, span.end_s) for span in attempt.recorder.trained(*window_s)]
    inner = [
        (span[0] + edge_s, span[1] - edge_s) if span[1] - span[0] >= _LONG * edge_s else span
        for span in spans
    ]
    energy = whole_window(
        total(
            [attempt.timeline.energy(key, *span) for span in inner],
            [end_s - start_s for start_s, end_s in inner],
        )
    )
    if energy.energy_j is None:
        return energy
    scale = _length_s(spans) / _length_s(inner)
    return replace(
        energy,
        energy_j=scale * energy.energy_j,
        stderr_j=scale * energy.stderr_j,
        edge_j=scale * energy.edge_j,
    )


def _length_s(spans: Iterable[tuple[float, float]]) -> float:
    return math.fsum(end_s - start_s for start_s, end_s in spans)


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
        for start, end in itertools.pairwise(tallies)
    ]
    steps = sum(count for _, count in parts)
    step_s = math.fsum(duration_s for duration_s, _ in parts) / steps
    residuals = math.fsum((duration_s - step_s * count) ** 2 for duration_s, count in parts)
    return math.sqrt(residuals * len(parts) / (len(parts) - 1)) / steps
