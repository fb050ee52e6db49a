"""StepPhases: follows steps for a while, and splits their energy at the end."""

from dataclasses import asdict
from typing import Final

from energy_callbacks.accounting.profilers import Measuring
from energy_callbacks.config import check_positive
from energy_callbacks.profiling.phases.exposure import Spans
from energy_callbacks.profiling.phases.marks import OUTSIDE, PhaseMarks, joined
from energy_callbacks.profiling.phases.readings import device_of, measured, readings
from energy_callbacks.profiling.phases.split import Refusal, Split, split
from energy_callbacks.profiling.phases.torch_hooks import TorchHooks
from energy_callbacks.report.profile_phases import StepPhase
from energy_callbacks.report.profile_phases import StepPhases as Found
from energy_callbacks.sensing.clock import Periodic
from energy_callbacks.sensing.step_ends import StepEnds

# Compilation, caches and clocks settle in the first steps.
_SKIPPED_STEPS: Final = 10
_SETTLE_S: Final = 0.5
_PATIENCE_S: Final = 3.0
# What has less of a step than this may be told together with its neighbour.
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

    PyTorch tells the phases itself, in plain loops, Lightning and Hugging Face. On a GPU, events on
    its stream date them (5 to 10 us each, about six a step, while steps are followed). Energy is
    *attributed*: fitted to the readings of the power sensor, and refused where they cannot tell.

    Args:
        follow_s: how long steps are followed, after the first ten.
        device_events: let events of the device date phases, where it has any.

    Raises:
        TypeError: where ``follow_s`` is no number.
        ValueError: where it is not positive.
    """

    def __init__(self, *, follow_s: float = 60.0, device_events: bool = True) -> None:
        self._follow_s = check_positive("follow_s", follow_s) or 0.0
        self._device_events = device_events
        self._forget()

    def _forget(self) -> None:
        self._meter: Measuring | None = None
        self._marks: PhaseMarks | None = None
        self._hooks: TorchHooks | None = None
        self._periodic: Periodic | None = None
        self._device: str | None = None
        self._steps = self._skipped = 0
        self._start_s = self._end_s = 0.0
        self._is_training = False
        self._is_over = False

    def start(self, meter: Measuring) -> None:
        """See ``Profiler``."""
        self._forget()
        self._meter = meter

    def enter(self, phase: str) -> None:
        """A phase of the step begins, for loops that PyTorch does not tell of.

        Args:
            phase: such as ``forward``; any word.
        """
        is_followed = self._is_training and not self._is_over
        if is_followed and self._marks is not None and self._meter is not None:
            self._marks.begin(phase, self._meter.now_s())

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
        elif name == "data_ready" and self._marks.name in ("data wait", OUTSIDE):
            self._marks.begin("transfer", t_s)
        elif name == "batch_done":
            self._marks.begin("data wait", t_s)

    def step(self, t_s: float) -> None:
        """See ``Profiler``."""
        if self._is_over or self._meter is None:
            return
        if self._marks is None:
            self._skipped += 1
            if self._skipped >= _SKIPPED_STEPS:
                self._follow(self._meter, t_s)
            return
        self._steps += 1
        self._marks.begin("data wait", t_s)
        if self._hooks is not None:
            self._hooks.expect_forward()
        if t_s - self._start_s >= self._follow_s:
            self._leave(t_s)

    def _follow(self, meter: Measuring, t_s: float) -> None:
        self._device = device_of(meter)
        if self._device is not None:
            meter.timeline.follow_power(self._device)
        on_gpu = self._device is not None and self._device.startswith("gpu")
        ends = StepEnds(meter.clock) if on_gpu and self._device_events else None
        self._marks = PhaseMarks(ends)
        self._periodic = meter.clock.every(
            _SETTLE_S, self._marks.settle, name="energy_callbacks phases"
        )
        hooks = TorchHooks(self.enter)
        self._hooks = hooks if hooks.install() else None
        self._start_s = t_s
        self._marks.begin("data wait", t_s)

    def _leave(self, t_s: float) -> None:
        """Enough was seen."""
        self._is_over, self._end_s = True, t_s
        if self._hooks is not None:
            self._hooks.remove()
        if self._marks is not None:
            self._marks.begin(OUTSIDE, t_s)

    def stop(self) -> None:
        """See ``Profiler``; takes a second or two."""
        meter, marks = self._meter, self._marks
        if meter is None or marks is None:
            return
        if not self._is_over:
            self._leave(meter.now_s())
        if self._periodic is not None:
            self._periodic.ask_to_stop()
            self._periodic.wait(_PATIENCE_S)
        meter.wait_until_seen(self._end_s, _PATIENCE_S)
        marks.close()
        meter.record_profile("step_phases", asdict(self._found(meter, marks)))
        self._forget()

    def _found(self, meter: Measuring, marks: PhaseMarks) -> Found:
        spans, names = marks.spans()
        spans, names, answer = _answer(meter, self._device, spans, names, self._steps)
        measured_j = None if self._device is None else measured(meter, self._device, spans)
        fitted = answer if isinstance(answer, Split) else None
        refusal = answer if isinstance(answer, Refusal) else None
        each_s = spans.times_s() / max(self._steps, 1)
        return Found(
            device=self._device or "no sensor",
            timed_by="device" if marks.by_device else "host",
            steps=self._steps,
            step_s=float(each_s.sum()),
            measured_j=None if measured_j is None else measured_j / max(self._steps, 1),
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


def _answer(
    meter: Measuring, device: str | None, spans: Spans, names: tuple[str, ...], steps: int
) -> tuple[Spans, tuple[str, ...], Split | Refusal]:
    """The split, and the phases that it is of: a short one that is not known joins the next."""
    if device is None:
        refusal = Refusal(
            why="no sensor has measured a device", help="run: energy-callbacks doctor"
        )
        return spans, names, refusal
    said = readings(meter, device, spans)
    if not set(names) - _TOLD_BY_THE_LOADER:
        return spans, names, _JITTED
    if said is None:
        refusal = Refusal(
            why=f"the power of {device} is a model's", help="a machine with a sensor is needed"
        )
        return spans, names, refusal
    told = spans, names
    answer = split(spans, said, names, steps)
    while isinstance(answer, Refusal) and answer.phase is not None and len(told[1]) > 2:
        times_s = told[0].times_s()
        if times_s[answer.phase] > _SHORT * times_s.sum():
            return spans, names, answer
        told = joined(*told, answer.phase)
        answer = split(told[0], said, told[1], steps)
    return *(told if isinstance(answer, Split) else (spans, names)), answer
