"""The profiler of step phases: follows steps for a while, and splits their energy at the end."""

import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Final

from energy_callbacks.accounting.attempt import ActiveAttempt
from energy_callbacks.core import forks
from energy_callbacks.core.config import check_positive
from energy_callbacks.core.guard import pass_on_signals
from energy_callbacks.profiling.common.attempt_profiler import AttemptProfiler
from energy_callbacks.profiling.phases.errors import PhaseSplit
from energy_callbacks.profiling.phases.exposure import Spans
from energy_callbacks.profiling.phases.fit import Readings
from energy_callbacks.profiling.phases.marks import OUTSIDE, PhaseMarks, merged
from energy_callbacks.profiling.phases.readings import device_of, measured_j, readings
from energy_callbacks.profiling.phases.split import Refusal, split
from energy_callbacks.profiling.phases.torch_hooks import TorchHooks
from energy_callbacks.report.model import profile_phases
from energy_callbacks.report.model.profile_phases import StepPhase
from energy_callbacks.sensing.frameworks.step_ends import StepEnds

logger = logging.getLogger("energy_callbacks")

# Compilation, caches and clock rates settle in the first steps.
_SKIPPED_STEPS: Final = 10
_SETTLE_S: Final = 0.5
_PATIENCE_S: Final = 3.0
# After this time a counter has confirmed the energy of the last followed moments.
_CONFIRMED_S: Final = 8.0
# A phase with less than this share of a step may be merged with its neighbour.
_SHORT: Final = 0.1
_REPORTED_BY_LOADERS: Final = {"data wait", "transfer"}
_NO_SENSOR: Final = Refusal(
    why="no sensor has measured the device that trains", help="run: energy-callbacks doctor"
)
_JITTED: Final = Refusal(
    why="neither forward nor backward was seen, as where a whole step is one compiled call",
    help="kernels can be told apart all the same: KernelProfiler()",
)


class StepPhases(AttemptProfiler["_PhaseRun"]):
    """Time and energy of data wait, transfer, forward, backward and optimizer in a training step.

    ::

        GpuEnergyCallback(profile=[StepPhases()])

    PyTorch reports the phases itself, in plain loops, Lightning and Hugging Face. On a GPU, events
    on its stream date them (5 to 10 us each, about six per step, while steps are followed). Energy
    is *attributed*: fitted to the readings of the power sensor. The split is refused if the
    readings do not suffice.

    Args:
        follow_s: time for which steps are followed, after the first ten.
        device_events: whether events of the device date phases, if it has any.

    Raises:
        TypeError: if ``follow_s`` is not a number.
        ValueError: if it is not positive.
    """

    def __init__(self, *, follow_s: float = 60.0, device_events: bool = True) -> None:
        self._follow_s = check_positive("follow_s", follow_s) or 0.0
        self._device_events = device_events

    def _begin(self, meter: ActiveAttempt) -> "_PhaseRun":
        return _PhaseRun(meter, self._follow_s, device_events=self._device_events)

    def enter(self, phase: str) -> None:
        """Begin a phase of the step, in loops whose phases PyTorch does not report.

        Args:
            phase: any word, such as ``forward``.
        """
        if self._run is not None:
            self._run.enter(phase)


class _PhaseRun:
    """Step phases of one attempt; see ``StepPhases`` for the settings.

    Attributes:
        followed: the steps whose phases are marked; ``None`` before and after an error.
    """

    def __init__(self, meter: ActiveAttempt, follow_s: float, *, device_events: bool) -> None:
        self._meter = meter
        self._follow_s = follow_s
        self._device_events = device_events
        self._steps = 0
        self._is_training = False
        self.followed: _FollowedSteps | None = None

    def enter(self, phase: str) -> None:
        """Begin a phase of the step."""
        followed = self.followed
        if followed is not None and followed.is_active and self._is_training:
            followed.marks.begin(phase, self._meter.now_s())

    def _on_phase(self, phase: str) -> None:
        """Handle a phase that PyTorch reports, in the middle of the training's own calls."""
        try:
            self.enter(phase)
        except Exception as error:
            pass_on_signals()
            logger.warning("StepPhases ends here: %r", error, exc_info=True)
            self._drop()

    def mark(self, name: str, t_s: float) -> None:
        """See ``Profiler``."""
        if name.startswith("phase:"):
            self._is_training = name == "phase:train"
        followed = self.followed
        if followed is None or not followed.is_active:
            return
        if not self._is_training:
            followed.marks.begin(OUTSIDE, t_s)
        elif name == "phase:train":
            followed.begin_step(t_s)
        elif name == "data_ready" and followed.marks.name in ("data wait", OUTSIDE):
            followed.marks.begin("transfer", t_s)
        elif name == "batch_done":
            followed.marks.begin("data wait", t_s)

    def step(self, t_s: float) -> None:
        """See ``Profiler``."""
        self._steps += 1
        if self.followed is not None:
            self.followed.step(t_s, self._follow_s)
        elif self._steps == _SKIPPED_STEPS:
            self.followed = _FollowedSteps(
                self._meter, t_s, self._on_phase, device_events=self._device_events
            )

    def stop(self) -> None:
        """See ``Profiler``; takes some seconds, more for steps of a few milliseconds."""
        try:
            if self.followed is not None:
                self._meter.record_profile("step_phases", asdict(self.followed.profile()))
        finally:
            self._drop()

    def _drop(self) -> None:
        followed, self.followed = self.followed, None
        if followed is not None:
            followed.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Observations:
    """The phases that were marked, and the readings of the device during them."""

    spans: Spans
    names: tuple[str, ...]
    readings: Readings | None
    energy_j: float | None
    is_dated_by_device: bool


class _FollowedSteps:
    """Steps whose phases are marked, from the creation of this object on.

    Args:
        meter: that measures them.
        start_s: the current time.
        on_phase: called with each phase that PyTorch reports.
        device_events: whether events of the device date phases.

    Attributes:
        marks: the phases so far.
    """

    def __init__(
        self,
        meter: ActiveAttempt,
        start_s: float,
        on_phase: Callable[[str], None],
        *,
        device_events: bool,
    ) -> None:
        self._meter = meter
        self._generation = forks.generation
        self._start_s = start_s
        self._end_s: float | None = None
        self._steps = 0
        self._observations: _Observations | None = None
        self._device = device_of(meter)
        if self._device is not None:
            meter.timeline.follow_power(self._device)
        on_gpu = self._device is not None and self._device.startswith("gpu")
        self.marks = PhaseMarks(StepEnds(meter.clock) if on_gpu and device_events else None)
        self._hooks = TorchHooks(on_phase)
        self._periodic = meter.clock.every(_SETTLE_S, self._look, name="energy_callbacks phases")
        self.marks.begin("data wait", start_s)
        self._hooks.install()

    @property
    def is_active(self) -> bool:
        """Whether phases are still marked, and this process is not a fork."""
        return self._end_s is None and self._generation == forks.generation

    def step(self, t_s: float, follow_s: float) -> None:
        """Count a step; stop marking if enough time was followed."""
        if not self.is_active:
            return
        self._steps += 1
        self.begin_step(t_s)
        if t_s - self._start_s >= follow_s or self.marks.is_full:
            self._leave(t_s)

    def begin_step(self, t_s: float) -> None:
        """Begin the first phase of a step."""
        self.marks.begin("data wait", t_s)
        self._hooks.begin_step()  # a validation may have used up the hook of the forward pass

    def _leave(self, t_s: float) -> None:
        self._end_s = t_s
        self._hooks.remove()
        self.marks.begin(OUTSIDE, t_s)

    def _look(self) -> None:
        """Date marks, and read the sensor while the timeline has details; on a separate thread."""
        if self._observations is not None:
            return
        self.marks.settle()
        if self._end_s is not None and self._meter.now_s() - self._end_s >= _CONFIRMED_S:
            self._observations = self._observe()

    def _observe(self) -> _Observations:
        self.marks.close()
        spans, names = self.marks.spans()
        device, meter = self._device, self._meter
        return _Observations(
            spans=spans,
            names=names,
            energy_j=None if device is None else measured_j(meter, device, spans),
            readings=None if device is None else readings(meter, device, spans),
            is_dated_by_device=self.marks.by_device,
        )

    def profile(self) -> profile_phases.StepPhases:
        """Stop marking, and return times and energies per step."""
        if self._end_s is None:
            self._leave(self._meter.now_s())
        self._periodic.ask_to_stop()
        self._periodic.wait(_PATIENCE_S)
        if self._observations is None:
            self._meter.wait_until_seen(self._end_s or 0.0, _PATIENCE_S)
            self._observations = self._observe()
        return _profile(self._observations, self._device, self._steps)

    def close(self) -> None:
        """Restore PyTorch, and stop following the sensor."""
        self._hooks.remove()
        self._periodic.ask_to_stop()
        if self._device is not None:
            self._meter.timeline.leave_power(self._device)


def _profile(seen: _Observations, device: str | None, steps: int) -> profile_phases.StepPhases:
    spans, names, answer = _answer(seen, device, steps)
    fitted = answer if isinstance(answer, PhaseSplit) else None
    refusal = answer if isinstance(answer, Refusal) else None
    times_s = spans.times_s() / max(steps, 1)
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
) -> tuple[Spans, tuple[str, ...], PhaseSplit | Refusal]:
    """Return the split and its phases; a short phase with too wide an interval joins the next."""
    original = spans, names = seen.spans, seen.names
    if device is None:
        return *original, _NO_SENSOR
    if not set(names) - _REPORTED_BY_LOADERS:
        return *original, _JITTED
    if seen.readings is None:
        refusal = Refusal(
            why=f"the power of {device} is a model's", help="a machine with a sensor is needed"
        )
        return *original, refusal
    answer = split(spans, seen.readings, names, steps)
    while isinstance(answer, Refusal) and answer.phase is not None and len(names) > 2:
        times_s = spans.times_s()
        if times_s[answer.phase] > _SHORT * times_s.sum():
            break
        spans, names = merged(spans, names, answer.phase)
        answer = split(spans, seen.readings, names, steps)
    return *((spans, names) if isinstance(answer, PhaseSplit) else original), answer
