"""StepPhases: follows steps for a while, and splits their energy at the end."""

import logging
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from energy_callbacks.accounting.attempt import ActiveAttempt
from energy_callbacks.core import forks
from energy_callbacks.core.config import check_positive
from energy_callbacks.core.guard import pass_on_signals
from energy_callbacks.profiling.phases.exposure import Spans
from energy_callbacks.profiling.phases.fit import Readings
from energy_callbacks.profiling.phases.marks import OUTSIDE, PhaseMarks, joined
from energy_callbacks.profiling.phases.readings import device_of, measured, readings
from energy_callbacks.profiling.phases.split import PhaseSplit, Refusal, split
from energy_callbacks.profiling.phases.torch_hooks import TorchHooks
from energy_callbacks.report.model.profile_phases import StepPhase
from energy_callbacks.report.model.profile_phases import StepPhases as Found
from energy_callbacks.sensing.clock import Periodic
from energy_callbacks.sensing.frameworks.step_ends import StepEnds

logger = logging.getLogger("energy_callbacks")

# Compilation, caches and clocks settle in the first steps.
_SKIPPED_STEPS: Final = 10
_SETTLE_S: Final = 0.5
_PATIENCE_S: Final = 3.0
# By then a counter has confirmed the energy of the last moments that were followed.
_CONFIRMED_S: Final = 8.0
# A phase with less of a step than this may be merged with its neighbour.
_SHORT: Final = 0.1
_TOLD_BY_THE_LOADER: Final = {"data wait", "transfer"}
_JITTED = Refusal(
    why="neither forward nor backward was seen, as where a whole step is one compiled call",
    help="kernels can be told apart all the same: KernelProfiler()",
)


class StepPhases:
    """Time and energy of data wait, transfer, forward, backward and optimizer in a training step.

    ::

        GpuEnergyCallback(profile=[StepPhases()])

    PyTorch reports the phases itself, in plain loops, Lightning and Hugging Face. On a GPU, events
    on its stream date them (5 to 10 us each, about six a step, while steps are followed). Energy is
    *attributed*: fitted to the readings of the power sensor, and refused if they do not suffice.

    Args:
        follow_s: how long steps are followed, after the first ten.
        device_events: let events of the device date phases, if it has any.

    Raises:
        TypeError: if ``follow_s`` is no number.
        ValueError: if it is not positive.
    """

    def __init__(self, *, follow_s: float = 60.0, device_events: bool = True) -> None:
        self._follow_s = check_positive("follow_s", follow_s) or 0.0
        self._device_events = device_events
        self._forget()

    def _forget(self) -> None:
        self._meter: ActiveAttempt | None = None
        self._marks: PhaseMarks | None = None
        self._hooks: TorchHooks | None = None
        self._periodic: Periodic | None = None
        self._device: str | None = None
        self._steps = self._skipped = 0
        self._start_s = self._end_s = 0.0
        self._is_training = False
        self._is_over = False
        self._generation: int | None = None
        self._said: _Said | None = None

    def start(self, meter: ActiveAttempt) -> None:
        """See ``Profiler``."""
        self._forget()
        self._meter = meter

    def enter(self, phase: str) -> None:
        """A phase of the step begins, for loops whose phases PyTorch does not report.

        Args:
            phase: such as ``forward``; any word.
        """
        is_followed = self._is_training and not self._is_over and not self._is_forked
        if is_followed and self._marks is not None and self._meter is not None:
            self._marks.begin(phase, self._meter.now_s())

    @property
    def _is_forked(self) -> bool:
        return self._generation is not None and self._generation != forks.generation

    def _heard(self, phase: str) -> None:
        """PyTorch has reported a phase, in the middle of the training's own calls."""
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
        if self._marks is None or self._is_over:
            return
        if not self._is_training:
            self._marks.begin(OUTSIDE, t_s)
        elif name == "phase:train":
            self._marks.begin("data wait", t_s)
            if self._hooks is not None:  # what was validated has used the hook up
                self._hooks.begin_step()
        elif name == "data_ready" and self._marks.name in ("data wait", OUTSIDE):
            self._marks.begin("transfer", t_s)
        elif name == "batch_done":
            self._marks.begin("data wait", t_s)

    def step(self, t_s: float) -> None:
        """See ``Profiler``."""
        if self._meter is None or self._is_over or self._is_forked:
            return
        if self._marks is None:
            self._skipped += 1
            if self._skipped >= _SKIPPED_STEPS:
                self._follow(self._meter, t_s)
            return
        self._steps += 1
        self._marks.begin("data wait", t_s)
        if self._hooks is not None:
            self._hooks.begin_step()
        if t_s - self._start_s >= self._follow_s or self._marks.is_full:
            self._leave(t_s)

    def _follow(self, meter: ActiveAttempt, t_s: float) -> None:
        self._generation = forks.generation
        self._device = device_of(meter)
        if self._device is not None:
            meter.timeline.follow_power(self._device)
        on_gpu = self._device is not None and self._device.startswith("gpu")
        ends = StepEnds(meter.clock) if on_gpu and self._device_events else None
        self._marks = PhaseMarks(ends)
        self._periodic = meter.clock.every(_SETTLE_S, self._look, name="energy_callbacks phases")
        self._hooks = TorchHooks(self._heard)
        self._hooks.install()
        self._start_s = t_s
        self._marks.begin("data wait", t_s)

    def _leave(self, t_s: float) -> None:
        """Enough was seen."""
        self._is_over, self._end_s = True, t_s
        if self._hooks is not None:
            self._hooks.remove()
        if self._marks is not None:
            self._marks.begin(OUTSIDE, t_s)

    def _look(self) -> None:
        """On a thread of its own: date marks, and read while the timeline has the details."""
        meter, marks = self._meter, self._marks
        if meter is None or marks is None or self._said is not None:
            return
        marks.settle()
        if self._is_over and meter.now_s() - self._end_s >= _CONFIRMED_S:
            self._said = self._read(meter, marks)

    def _read(self, meter: ActiveAttempt, marks: PhaseMarks) -> "_Said":
        """Readings during the steps; marking ends."""
        marks.close()
        spans, names = marks.spans()
        if self._device is None:
            return _Said(spans, names, None, None, by_device=marks.by_device)
        energy_j = measured(meter, self._device, spans)
        said = readings(meter, self._device, spans)
        return _Said(spans, names, said, energy_j, by_device=marks.by_device)

    def stop(self) -> None:
        """See ``Profiler``; takes some seconds, more for steps of a few milliseconds."""
        meter, marks = self._meter, self._marks
        try:
            if meter is None or marks is None:
                return
            if not self._is_over:
                self._leave(meter.now_s())
            if self._periodic is not None:
                self._periodic.ask_to_stop()
                self._periodic.wait(_PATIENCE_S)
            if self._said is None:
                meter.wait_until_seen(self._end_s, _PATIENCE_S)
                self._said = self._read(meter, marks)
            meter.record_profile("step_phases", asdict(self._found(self._said)))
        finally:
            self._drop()

    def _drop(self) -> None:
        """Leave everything as it was."""
        hooks, periodic, meter, device = self._hooks, self._periodic, self._meter, self._device
        self._forget()
        if hooks is not None:
            hooks.remove()
        if periodic is not None:
            periodic.ask_to_stop()
        if meter is not None and device is not None:
            meter.timeline.leave_power(device)

    def __getstate__(self) -> dict[str, Any]:
        """A copy follows nothing."""
        return {"_follow_s": self._follow_s, "_device_events": self._device_events}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    def _found(self, told: "_Said") -> Found:
        spans, names, answer = _answer(told, self._device, self._steps)
        fitted = answer if isinstance(answer, PhaseSplit) else None
        refusal = answer if isinstance(answer, Refusal) else None
        each_s = spans.times_s() / max(self._steps, 1)
        return Found(
            device=self._device or "no sensor",
            timed_by="device" if told.by_device else "host",
            steps=self._steps,
            step_s=float(each_s.sum()),
            measured_j=None if told.energy_j is None else told.energy_j / max(self._steps, 1),
            split_j=None if fitted is None else float(fitted.power_w @ each_s),
            lag_s=None if fitted is None else fitted.lag_s,
            response_s=None if fitted is None else fitted.response_s,
            refusal=None if refusal is None else refusal.why,
            help=None if refusal is None else refusal.help,
            phases=tuple(
                StepPhase(
                    name=name,
                    time_s=float(each_s[number]),
                    energy_j=None if fitted is None else float((fitted.power_w * each_s)[number]),
                    error_j=None if fitted is None else float((fitted.error_w * each_s)[number]),
                )
                for number, name in enumerate(names)
            ),
        )


@dataclass(frozen=True, slots=True)
class _Said:
    """The marks, and the readings meanwhile."""

    spans: Spans
    names: tuple[str, ...]
    readings: Readings | None
    energy_j: float | None
    by_device: bool = field(kw_only=True)


def _answer(
    told: _Said, device: str | None, steps: int
) -> tuple[Spans, tuple[str, ...], PhaseSplit | Refusal]:
    """The split, and the phases that it is of: a short one that is not known joins the next."""
    spans, names, said = told.spans, told.names, told.readings
    if device is None:
        refusal = Refusal(
            why="no sensor has measured the device that trains", help="run: energy-callbacks doctor"
        )
        return spans, names, refusal
    if not set(names) - _TOLD_BY_THE_LOADER:
        return spans, names, _JITTED
    if said is None:
        refusal = Refusal(
            why=f"the power of {device} is a model's", help="a machine with a sensor is needed"
        )
        return spans, names, refusal
    phases = spans, names
    answer = split(spans, said, names, steps)
    while isinstance(answer, Refusal) and answer.phase is not None and len(phases[1]) > 2:
        times_s = phases[0].times_s()
        if times_s[answer.phase] > _SHORT * times_s.sum():
            return spans, names, answer
        phases = joined(*phases, answer.phase)
        answer = split(phases[0], said, phases[1], steps)
    return *(phases if isinstance(answer, PhaseSplit) else (spans, names)), answer
