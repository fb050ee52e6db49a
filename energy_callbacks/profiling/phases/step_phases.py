"""The profiler of step phases (parts of a step): observes some steps, then splits their energy."""

from dataclasses import asdict, dataclass
from typing import Final

import numpy as np

from energy_callbacks.accounting.attempt import ActiveAttempt
from energy_callbacks.core import forks
from energy_callbacks.core.extras import check_installed
from energy_callbacks.core.guard import logger, pass_on_signals
from energy_callbacks.core.settings.checks import check_positive
from energy_callbacks.profiling.common.attempt_profiler import AttemptProfiler
from energy_callbacks.profiling.phases.errors import PhaseSplit
from energy_callbacks.profiling.phases.exposure import Numbers, Spans
from energy_callbacks.profiling.phases.fit import Readings
from energy_callbacks.profiling.phases.marks import OUTSIDE, PhaseMarks, merged
from energy_callbacks.profiling.phases.readings import device_of, measured_j, readings
from energy_callbacks.profiling.phases.split import Refusal, split
from energy_callbacks.profiling.phases.torch_hooks import TorchHooks
from energy_callbacks.report.model import profile_phases
from energy_callbacks.report.model.profile_phases import StepPhase
from energy_callbacks.sensing.clock import Periodic
from energy_callbacks.sensing.frameworks.work_ends import WorkEnds

# The first steps are skipped: in them code is compiled, caches fill and clock rates still change.
_SKIPPED_STEPS: Final = 10
_SETTLE_S: Final = 0.5
_PATIENCE_S: Final = 3.0
# Time after the end of the last observed step, s. By then, the readings of the energy counter cover
# that step.
_CONFIRMED_S: Final = 8.0
# A phase with less than this share of a step may be merged with the next phase.
_SHORT: Final = 0.1
_REPORTED_BY_LOADERS: Final = {"data wait", "transfer"}
_NO_SENSOR: Final = Refusal(
    why="no sensor has measured the device that trains", help="run: energy-callbacks doctor"
)
_JITTED: Final = Refusal(
    why="no forward or backward was detected, which is the case if a whole step is one compiled "
    "call",
    help="KernelProfiler() can still measure kernels",
)


@dataclass(eq=False, kw_only=True)
class StepPhases(AttemptProfiler["_PhaseRun"]):
    """Measures time and energy of data wait, transfer, forward, backward and optimizer in a step.

    ::

        GpuEnergyCallback(profilers=[StepPhases()])

    In plain loops, Lightning and Hugging Face, hooks in PyTorch report forward, backward and
    optimizer. On a GPU, CUDA events on the stream of the training give the times of phases. While
    steps are observed, there are about six events per step, and each costs 5 to 10 us. The energy
    of a phase is *attributed*: the powers of all phases are fitted to the readings of the power
    sensor. The energy is not split among the phases if the readings are not sufficient.

    Args:
        follow_s: time in seconds for which steps are observed, after the first ten steps.
        device_events: whether to use events of the device for the times of phases. Without events,
            the host's clock is used.

    Raises:
        MissingExtraError: if SciPy is not installed.
        TypeError: if ``follow_s`` is not a number.
        ValueError: if ``follow_s`` is not positive.
    """

    follow_s: float = 60.0
    device_events: bool = True

    def __post_init__(self) -> None:
        check_installed("scipy", extra="phases")
        check_positive("follow_s", self.follow_s)

    def _begin(self, meter: ActiveAttempt) -> "_PhaseRun":
        return _PhaseRun(self, meter)

    def enter(self, phase: str) -> None:
        """Begin a phase of the step, in loops whose phases PyTorch does not report.

        Args:
            phase: name of the phase, such as ``forward``.
        """
        if self._run is not None:
            self._run.enter(phase)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Observations:
    """The phases that were marked, and the readings and energy of the device during them."""

    spans: Spans
    names: tuple[str, ...]
    readings: Readings | None
    energy_j: float | None
    is_dated_by_device: bool


class _PhaseRun:
    """Profiles the step phases of one attempt; phases are marked after the first ten steps.

    This class implements ``ProfilerRun`` (``profiling/common/attempt_profiler.py``).

    Args:
        settings: settings of the profiler.
        meter: the attempt.

    Attributes:
        marks: the phases so far; ``None`` before marking starts, and after an error or ``stop``.
    """

    def __init__(self, settings: StepPhases, meter: ActiveAttempt) -> None:
        self._settings, self._meter = settings, meter
        self._skipped = self._steps = 0
        self._is_training = True  # a plain loop may enter no phase
        self._start_s: float | None = None
        self._end_s: float | None = None
        self._observations: _Observations | None = None
        self._device: str | None = None
        self._generation = forks.generation
        self._hooks = TorchHooks(self._on_phase)
        self._periodic: Periodic | None = None
        self.marks: PhaseMarks | None = None

    @property
    def _active_marks(self) -> PhaseMarks | None:
        """The marks, or ``None`` if phases are not being marked or this is a forked process."""
        is_active = self._end_s is None and self._generation == forks.generation
        return self.marks if is_active else None

    def enter(self, phase: str) -> None:
        """Begin a phase of the step if phases are being marked."""
        if self._is_training and (marks := self._active_marks) is not None:
            marks.begin(phase, self._meter.now_s())

    def _on_phase(self, phase: str) -> None:
        """Begin a phase that a hook reports; an error ends the profile, but not the training."""
        try:
            self.enter(phase)
        except Exception as error:
            pass_on_signals()
            logger.warning("StepPhases stopped: %r", error, exc_info=True)
            self._drop()

    def mark(self, name: str, t_s: float) -> None:
        """Begin the step phase that starts with this event of the loop."""
        if name.startswith("phase:"):
            self._is_training = name == "phase:train"
        marks = self._active_marks
        if marks is None:
            return
        if not self._is_training:
            marks.begin(OUTSIDE, t_s)
        elif name == "phase:train":
            self._begin_step(marks, t_s)
        elif name == "data_ready" and marks.name in ("data wait", OUTSIDE):
            marks.begin("transfer", t_s)
        elif name == "batch_done":
            marks.begin("data wait", t_s)

    def step(self, t_s: float) -> None:
        """Count a step, and start or end the marking of phases when due."""
        self._skipped += 1
        if self._skipped == _SKIPPED_STEPS:
            self._follow(t_s)
        elif self._is_training and (marks := self._active_marks) is not None:
            self._steps += 1
            self._begin_step(marks, t_s)
            if t_s - (self._start_s or t_s) >= self._settings.follow_s or marks.is_full:
                self._leave(marks, t_s)

    def _follow(self, t_s: float) -> None:
        meter = self._meter
        self._start_s, self._generation = t_s, forks.generation
        self._device = device_of(meter)
        if self._device is not None:
            meter.timeline.follow_power(self._device)
        has_events = str(self._device).startswith("gpu") and self._settings.device_events
        self.marks = PhaseMarks(WorkEnds(meter.clock, None if has_events else lambda: None))
        self._periodic = meter.clock.every(_SETTLE_S, self._look, name="energy_callbacks phases")
        self._hooks.install()
        self.marks.begin("data wait", t_s)

    def _begin_step(self, marks: PhaseMarks, t_s: float) -> None:
        marks.begin("data wait", t_s)
        self._hooks.begin_step()  # a validation may have removed the hook of the forward pass

    def _leave(self, marks: PhaseMarks, t_s: float) -> None:
        self._end_s = t_s
        self._hooks.remove()
        marks.begin(OUTSIDE, t_s)

    def _look(self) -> None:
        """Determine times of marks, and get readings before the timeline thins or discards them.

        Runs on a separate thread.
        """
        marks = self.marks
        if marks is None or self._observations is not None:
            return
        marks.ends.settle()
        if self._end_s is not None and self._meter.now_s() - self._end_s >= _CONFIRMED_S:
            self._observations = self._observe(marks)

    def _observe(self, marks: PhaseMarks) -> _Observations:
        marks.ends.close()
        spans, names = marks.spans()
        device, meter = self._device, self._meter
        return _Observations(
            spans=spans,
            names=names,
            energy_j=None if device is None else measured_j(meter, device, spans),
            readings=None if device is None else readings(meter, device, spans),
            is_dated_by_device=marks.by_device,
        )

    def stop(self) -> None:
        """Split the energy, and record the profile.

        Takes some seconds, and longer if steps take only a few milliseconds.
        """
        try:
            if self.marks is not None and self._periodic is not None and self._steps:
                self._record(self.marks, self._periodic)
        finally:
            self._drop()

    def _record(self, marks: PhaseMarks, periodic: Periodic) -> None:
        if self._end_s is None:
            self._leave(marks, self._meter.now_s())
        periodic.ask_to_stop()
        periodic.wait(_PATIENCE_S)
        if self._observations is None:
            self._meter.wait_until_seen(self._end_s or 0.0, _PATIENCE_S)
            self._observations = self._observe(marks)
        profile = _profile(self._observations, self._device, self._steps)
        self._meter.record_profile("step_phases", asdict(profile))

    def _drop(self) -> None:
        """Remove the hooks in PyTorch, and stop recording the readings of the sensor."""
        self.marks = None
        self._hooks.remove()
        if self._periodic is not None:
            self._periodic.ask_to_stop()
        if self._device is not None:
            self._meter.timeline.leave_power(self._device)


def _profile(seen: _Observations, device: str | None, steps: int) -> profile_phases.StepPhases:
    group_of, names, answer = _answer(seen, device, steps)
    fitted = answer if isinstance(answer, PhaseSplit) else None
    refusal = answer if isinstance(answer, Refusal) else None
    times_s = np.bincount(group_of, seen.spans.times_s(), len(names)) / max(steps, 1)
    energies_j = errors_j = [None] * len(names)
    if fitted is not None:
        energies_j = (fitted.power_w * times_s).tolist()
        errors_j = (fitted.error_w * times_s).tolist()
    values = zip(names, times_s.tolist(), energies_j, errors_j, strict=True)
    return profile_phases.StepPhases(
        device=device or "no sensor",
        timed_by="device" if seen.is_dated_by_device else "host",
        steps=steps,
        step_s=float(times_s.sum()),
        measured_j=None if seen.energy_j is None else seen.energy_j / max(steps, 1),
        split_j=None if fitted is None else float(fitted.power_w @ times_s),
        lag_s=None if fitted is None else fitted.lag_s,
        response_s=None if fitted is None else fitted.response_s,
        refusal=None if refusal is None else refusal.why,
        help=None if refusal is None else refusal.help,
        phases=tuple(
            StepPhase(name=name, time_s=time_s, energy_j=energy_j, error_j=error_j)
            for name, time_s, energy_j, error_j in values
        ),
    )


def _answer(
    seen: _Observations, device: str | None, steps: int
) -> tuple[Numbers, tuple[str, ...], PhaseSplit | Refusal]:
    """Return the phases, and their split or the reason why there is none.

    If the energy of a short phase cannot be determined well enough, the phase is merged with the
    next one: the fit still gives each of them a power of its own, but only their sum is reported.

    Returns:
        The index into the names for each phase of ``seen.spans``, the names, and the split.
    """
    each, names = np.arange(seen.spans.count), seen.names
    if device is None:
        return each, names, _NO_SENSOR
    if not set(", ".join(names).split(", ")) - _REPORTED_BY_LOADERS:  # names may be merged
        return each, names, _JITTED
    if seen.readings is None:
        refusal = Refusal(
            why=f"the power of {device} is estimated by a model",
            help="use a machine with a power sensor",
        )
        return each, names, refusal
    group_of, times_s = each, seen.spans.times_s()
    answer = split(seen.spans, seen.readings, names, steps)
    while isinstance(answer, Refusal) and answer.phase is not None and len(names) > 2:
        if times_s[group_of == answer.phase].sum() > _SHORT * times_s.sum():
            break
        group_of, names = merged(group_of, names, answer.phase)
        answer = split(seen.spans, seen.readings, names, steps, group_of)
    if isinstance(answer, Refusal):
        return each, seen.names, answer
    return group_of, names, answer
