"""``EnergyMeter``: measures the energy of a training; adapters and training loops call it.

Adapters also use the methods ``_abandon``, ``_add_run_logs``, ``_end_call``, ``_record``,
``_start``, ``_step_marks`` and ``_wait_until_seen``, and the attribute ``_clock``. These are no
part of the public interface.
"""

import contextlib
import functools
import inspect
import math
import os
import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Self, TypeVar, Unpack

from energy_callbacks.accounting import open_attempts
from energy_callbacks.accounting.journal import journal
from energy_callbacks.accounting.journal.launch import COMMAND, TrainingProcess, default_folder
from energy_callbacks.accounting.lifecycle import Lifecycle
from energy_callbacks.accounting.metrics.budget_allreduce import BudgetAllreduce
from energy_callbacks.accounting.metrics.tags import with_prefix
from energy_callbacks.accounting.profilers import OneOrMoreProfilers, Profilers
from energy_callbacks.accounting.step_marks import DONE, READY, STEP, Event, StepMarks
from energy_callbacks.core import forks
from energy_callbacks.core.active_call import ActiveCall
from energy_callbacks.core.config import (
    DISABLED_VARIABLE,
    ConfigSettings,
    EnergyConfig,
    check_names,
    is_disabled,
    settings_in_use,
)
from energy_callbacks.core.errors import JournalError
from energy_callbacks.core.guard import (
    FirstWarning,
    give_up,
    harmless,
    logger,
    pass_on_signals,
)
from energy_callbacks.core.records import Device, Energy
from energy_callbacks.core.settings.checks import check_methods
from energy_callbacks.outputs.fault_tolerant import FaultTolerantOutput
from energy_callbacks.outputs.protocol import Output, check_outputs
from energy_callbacks.report_process import meter_reports
from energy_callbacks.report_process.endings import Ending, Endings
from energy_callbacks.sensing.clock import Clock, SystemClock
from energy_callbacks.sensing.sources.protocol import DiscoveredSources, Source, check_sources

if TYPE_CHECKING:
    from energy_callbacks.accounting.attempt import ActiveAttempt
    from energy_callbacks.accounting.metrics.scalars import Scalars
    from energy_callbacks.accounting.power_control import PowerControl
    from energy_callbacks.outputs.run_logs import RunLogs
    from energy_callbacks.report.model.schema import EnergyReport

# Maximum wait in seconds for the energies of phases in the report of a running meter. Computing
# them takes 0.1 to 0.3 s of processor time for a GPU.
_PHASES_S = 3.0
_NOT_STARTED: Final = "the meter was never started in this process; train first, or call start()"
_DISABLED: Final = f"{DISABLED_VARIABLE} disables all measurements; unset it to measure"
_KEYWORDS: Final = (
    "config", "sources", "clock", "outputs", "profilers", *ConfigSettings.__annotations__
)  # fmt: skip
_CLOCK: Final = ("monotonic_s", "unix_s", "sleep", "every")
_DATA_READY: Final = "data_ready"
_BATCH_DONE: Final = "batch_done"
# Computed times of events may be later than now by a rounding error.
_ROUNDING_S = 1e-3

P = ParamSpec("P")
R = TypeVar("R")


class EnergyMeter:
    """Measures the energy of a training between ``start`` and ``stop``.

    ::

        with EnergyMeter(country="DEU") as meter:
            with meter.phase("train"):
                for batch in loader:
                    ...
                    meter.step(samples=len(batch))
        report = meter.report()

    Sensors and files are opened in ``start``. A copy or a pickle of a meter is not running. If
    measuring fails, it ends with a warning, and the training continues. Only ``energy``, ``report``
    and methods that end an attempt, such as ``stop``, wait for other threads; ``energy`` waits for
    at most 50 ms, and the others for at most a few seconds. In a forked child process nothing is
    measured until the child calls ``start``, and no method waits for a lock that another thread
    held at the fork.

    Args:
        config: all settings as one object; ``None`` if they are passed as keyword arguments.
        sources: sensors to read; ``None`` finds the sensors of this machine.
        clock: clock for all times; ``None`` is the system's clock.
        outputs: outputs to which ``log`` writes.
        profilers: profilers to run in each attempt: objects such as ``KernelProfiler()``, or the
            names ``"kernels"``, ``"lines"``, ``"phases"`` and ``"host"``; one, or a list.
        **settings: settings by name, such as ``country="DEU"``; see ``EnergyConfig``.

    Attributes:
        config: the settings.

    Raises:
        ValueError: for an invalid setting, such as an unknown country or an invalid file of carbon
            intensities; if both ``config`` and settings are passed; if a profiler's name is
            unknown.
        TypeError: if a setting is unknown or has the wrong type, or if a source, the clock, an
            output or a profiler lacks a method.
    """

    def __init__(
        self,
        *,
        config: EnergyConfig | None = None,
        sources: Sequence[Source] | None = None,
        clock: Clock | None = None,
        outputs: Sequence[Output] = (),
        profilers: OneOrMoreProfilers = (),
        **settings: Unpack[ConfigSettings],
    ) -> None:
        self.config = _config(config, settings)
        if self.config.country is not None or self.config.carbon_intensity is not None:
            from energy_callbacks.accounting.grid.grid import check_grid

            check_grid(self.config)
        if sources is not None:
            check_sources(sources)
        if clock is not None:
            check_methods("a clock", clock, _CLOCK, "leave clock out for the system's clock")
        self._sources = sources
        self._clock = clock or SystemClock()
        now_s = self._clock.monotonic_s
        check_outputs(outputs)
        self._outputs = tuple(FaultTolerantOutput(output, now_s=now_s) for output in outputs)
        self._profilers = Profilers(profilers)
        self._power_control: PowerControl | None = None
        if self.config.power_limit is not None:
            from energy_callbacks.accounting.power_control import power_control_from

            self._power_control = power_control_from(self.config)
        self._lifecycle = Lifecycle()
        self._cannot_vote = False
        self._vote = BudgetAllreduce()
        self._warn_of_window = FirstWarning()
        self._endings = Endings(self._lifecycle, self.config, self._clock)

    def now_s(self) -> float:
        """Return the monotonic time in seconds, which is ``time.monotonic()``.

        With a ``clock``, return its monotonic time.
        """
        return self._clock.monotonic_s()

    @property
    def is_running(self) -> bool:
        """Whether an attempt of this meter is running in this process."""
        return self._lifecycle.running is not None

    @property
    def run_folder(self) -> Path | None:
        """Folder of journals and reports; ``None`` before the first start."""
        newest = self._lifecycle.newest
        return newest.run_folder if newest else None

    @property
    def run_id(self) -> str | None:
        """Id of the run, shared by all its attempts; ``None`` before the first start."""
        newest = self._lifecycle.newest
        return newest.run_id if newest else None

    @property
    def devices(self) -> tuple[Device, ...]:
        """The measured devices of this host; empty until their sensors have opened."""
        newest = self._lifecycle.own
        return newest.devices if newest else ()

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint: the run, its energy so far, and the carbon intensity.

        The state can be encoded as JSON and is empty before the first start. To continue the run,
        pass the state to ``start``.
        """
        last = self._lifecycle.own
        if last is None:
            return {}
        self._ask(last)
        return last.state()

    @harmless
    def _ask(self, attempt: "ActiveAttempt") -> None:
        attempt.board.ask()

    def start(
        self,
        run_folder: str | os.PathLike[str] | None = None,
        *,
        state: Mapping[str, Any] | None = None,
    ) -> Self:
        """Begin an attempt; do nothing if an attempt is running or measuring is disabled.

        If ``stop`` is not called, the attempt ends when the interpreter exits. Rank 0 then writes
        the report. Rank and world size are read from the environment variables of ``torchrun``.

        Args:
            run_folder: folder of journal and report, unless ``config`` names one. ``None`` is the
                folder of this meter's last run; before the first run, a folder in
                ``./energy_runs``.
            state: state of the run that this attempt continues, from ``state()`` in a checkpoint.
                If ``state`` is ``None``, the attempt continues this meter's last run if that run is
                in the same folder, and begins a new run otherwise.

        Raises:
            PermissionError: if the folder is not writable.
            ValueError: if a device in the settings does not exist, if a variable of ``torchrun``
                is not a number, or if ``state`` has no run.
            TypeError: if ``state`` is no dictionary.
            SourceUnavailable: if the settings name GPUs and NVML lists none within five seconds.
        """
        _check_state(state)
        return self._start(run_folder, state=state, ends_with_call=False)

    def _start(
        self,
        run_folder: str | os.PathLike[str] | None = None,
        *,
        state: Mapping[str, Any] | None = None,
        process: TrainingProcess | None = None,
        used_gpus: Sequence[int | str] | None = None,
        call: ActiveCall | None = None,
        say: Callable[[str], None] = logger.info,
        ends_with_call: bool = True,
    ) -> Self:
        """Begin an attempt, with what an adapter knows about the training.

        If an attempt of the user is running, a call begins in it, which ``_end_call`` ends.

        Args:
            run_folder: see ``start``.
            state: see ``start``.
            process: framework, rank and world size of this process; ``None`` reads the environment
                variables of ``torchrun``.
            used_gpus: the GPUs that the framework uses, as in ``discover``; ``()`` if it uses none,
                ``None`` if unknown. Other GPUs that the run uses are found while it runs, unless
                the settings name GPUs.
            call: the user's call that trains, such as ``fit``; the attempt also ends when it has
                ended. It is needed if the framework calls no hook when a training fails, and is
                ``None`` otherwise.
            say: function that prints messages: forecasts, and the summary of the report if ``stop``
                is not called.
            ends_with_call: whether ``_end_call`` ends the attempt; ``False`` if the user ends it.

        Raises:
            PermissionError: see ``start``.
            ValueError: see ``start``.
            SourceUnavailable: see ``start``.
        """
        from energy_callbacks.accounting.attempt import ActiveAttempt

        self._lifecycle.end_if_left()
        if ends_with_call:
            self._lifecycle.begin_call(call)
        if self.is_running or is_disabled():
            return self
        if Profilers.offer is not None:
            self._profilers = Profilers.offer.added_to(self._profilers)
        process = process or TrainingProcess.from_environment()
        chosen = self.config.run_folder or run_folder or self.run_folder or default_folder(process)
        folder = Path(chosen).expanduser().absolute()
        journal.check_writable(folder, settings_in_use(self.config)["report_dir"].origin)
        open_attempts.wait_for_journals(folder)
        if not (state and state.get("run_id")):
            state = self.state() if self.run_folder == folder else {}
        attempt = ActiveAttempt(
            config=self.config,
            found=self._find_sources(process, used_gpus),
            clock=self._clock,
            run_folder=folder,
            state=state,
            process=process,
            on_failure=self._abandon,
            call=call,
            on_left=lambda: self._lifecycle.end_if_left(on_own_thread=True),
            ends_with_call=ends_with_call,
        )
        self._cannot_vote = False
        self._vote.begin(process.world_size)
        self._endings.say = say
        self._lifecycle.begin(attempt, self._profilers, self._endings.of_left)
        self._profilers.start(attempt)
        # The program that a command measures may have an optimizer of its own.
        if self._power_control is not None and process.framework != COMMAND:
            self._control_power(attempt, self._power_control)
        return self

    @harmless
    def _control_power(self, attempt: "ActiveAttempt", control: "PowerControl") -> None:
        run = control.begin(attempt)
        attempt.thread.power = run
        if run.pacer is not None:
            self._profilers.add(run.pacer)

    def _find_sources(
        self, process: TrainingProcess, used_gpus: Sequence[int | str] | None
    ) -> DiscoveredSources:
        from energy_callbacks.sensing.discovery import discover

        if self._sources is not None:
            return DiscoveredSources(sources=tuple(self._sources))
        return discover(
            self._clock,
            devices=self.config.devices,
            used=used_gpus,
            follow_children=process.local_world_size == 1,
            host=process.local_rank == 0,
            other_program=process.framework == COMMAND,
            machine_power=self.config.machine_power,
        )

    def _abandon(self, message: str) -> None:
        """Stop measuring after an error; log ``message`` with the exception being handled."""
        self._lifecycle._abandon(message)

    @harmless
    def enter(self, phase: str) -> None:
        """Enter a phase; the current phase is paused until ``leave``."""
        if attempt := self._lifecycle.running_after_call():
            now_s = attempt.note_alive()
            attempt.recorder.enter(phase, now_s)
            self._profilers.mark(f"phase:{attempt.recorder.phases.name}", now_s)

    @harmless
    def leave(self, phase: str) -> None:
        """Leave a phase and every phase inside it; do nothing if the phase is not active.

        In a framework's call, such as ``fit``, phases that were entered before it are not left.
        """
        if attempt := self._lifecycle.running_after_call():
            now_s = attempt.note_alive()
            attempt.recorder.leave(phase, now_s)
            self._profilers.mark(f"phase:{attempt.recorder.phases.name}", now_s)

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Enter a phase, such as ``train``, and leave it at the end of the block."""
        self.enter(name)
        try:
            yield
        finally:
            self.leave(name)

    def step(self, samples: float | None = None, tokens: float | None = None) -> None:
        """Report that an optimizer step has ended now.

        Args:
            samples: number of samples of the step, over all its micro-batches; ``None`` if it is
                unknown or will be reported by ``count``.
            tokens: number of tokens of the step; ``None`` as for ``samples``.
        """
        # This runs at every step. No helper functions: a call takes 1 to 3 us with cold caches.
        life = self._lifecycle
        attempt = life.attempt
        if attempt is None or life.generation != forks.generation:
            return
        try:
            now_s = self._clock.monotonic_s()
            log = attempt.steps
            log.append((STEP, now_s, samples, tokens, log.ends.mark(now_s) if log.ends else None))
            if self._profilers.running:
                self._profilers.step(now_s)
        except Exception:  # noqa: BLE001 - a bug here must not stop the training
            give_up(self, "step")

    @harmless
    def count(self, samples: float | None = None, tokens: float | None = None) -> None:
        """Report the samples and tokens of earlier steps, if they were unknown at ``step``.

        Args:
            samples: number of samples in all steps whose samples are still unknown, as one sum. If
                there is no such step, this number corrects the total: it is added to the total, and
                may be negative. ``None`` changes nothing.
            tokens: number of tokens, with the same rules as ``samples``.
        """
        if attempt := self._lifecycle.running:
            attempt.steps.tell(attempt.note_alive(), samples, tokens)

    def data_ready(self, t_s: float | None = None) -> None:
        """Report that the next batch has arrived.

        The time from ``batch_done`` or the end of a step to ``data_ready`` counts as waiting for
        data, unless the phase changes in this time.

        Args:
            t_s: monotonic time of the event in seconds; ``None`` is now.

        Raises:
            TypeError: if the time is no number.
            ValueError: if it is in the future, as those of ``time.time()`` are.
        """
        self._check_past(_DATA_READY, t_s)
        self._mark_step(READY, _DATA_READY, t_s)

    def batch_done(self, t_s: float | None = None) -> None:
        """Report that a batch without an optimizer step is done; see ``data_ready``.

        Args:
            t_s: monotonic time of the event in seconds; ``None`` is now.

        Raises:
            TypeError: see ``data_ready``.
            ValueError: see ``data_ready``.
        """
        self._check_past(_BATCH_DONE, t_s)
        self._mark_step(DONE, _BATCH_DONE, t_s)

    def _check_past(self, method: str, t_s: float | None) -> None:
        if t_s is None or _is_past(t_s, (now_s := self.now_s()) + _ROUNDING_S):
            return
        raise (ValueError if isinstance(t_s, Real) else TypeError)(
            f"{method}() needs a past time of now_s(), got {t_s!r}, now is {now_s:.3f}; "
            "use now_s(), which is time.monotonic(), or leave t_s out for now"
        )

    def _mark_step(self, kind: int, name: str, t_s: float | None) -> None:
        life = self._lifecycle  # no helper functions, for the same reason as in ``step``
        attempt = life.attempt
        if attempt is None or life.generation != forks.generation:
            return
        try:
            at_s = self._clock.monotonic_s() if t_s is None else t_s
            attempt.steps.append((kind, at_s, None, None, None))
            if self._profilers.running:
                self._profilers.mark(name, at_s)
        except Exception:  # noqa: BLE001 - a bug here must not stop the training
            give_up(self, name)

    def mark(self, name: str, t_s: float | None = None) -> None:
        """Write an event of the user into the journal, and report it to the profilers.

        Args:
            name: name of the event.
            t_s: monotonic time of the event in seconds; ``None`` is now.

        Raises:
            ValueError: for the names ``data_ready`` and ``batch_done``, which are methods, and for
                a time in the future.
            TypeError: if the time is no number.
        """
        if name in (_DATA_READY, _BATCH_DONE):
            raise ValueError(f"mark({name!r}) is not possible; call the method {name}() instead")
        self._check_past("mark", t_s)
        self._mark(name, t_s)

    @harmless
    def _mark(self, name: str, t_s: float | None) -> None:
        if attempt := self._lifecycle.running:
            at_s = self._clock.monotonic_s() if t_s is None else t_s
            attempt.recorder.event("mark", at_s, name=name)
            self._profilers.mark(name, at_s)

    def _step_marks(self) -> StepMarks:
        """Return an object that does what ``data_ready``, ``batch_done`` and ``step`` do, faster.

        It belongs to the running attempt, and does nothing after its end.
        """
        attempt, now_s = self._lifecycle.running, self._clock.monotonic_s
        if attempt is None or attempt.steps.ends or self._profilers.running:
            return StepMarks(self._take_event, now_s)
        return attempt.steps.marks(now_s)

    def _take_event(self, event: Event) -> None:
        kind, t_s, samples, tokens, _ = event
        if kind == STEP:
            self.step(samples, tokens)
        else:
            self._mark_step(kind, _DATA_READY if kind == READY else _BATCH_DONE, t_s)

    def is_over_budget(self, add: Callable[[float], float] | None = None) -> bool:
        """Return whether all attempts of the run together have used up its budget.

        If several processes train, all of them must call this after the same steps.

        Args:
            add: returns the sum of its argument over all processes; ``None`` uses PyTorch's
                all-reduce.
        """
        if not self.config.has_budget or is_disabled() or self._cannot_vote:
            return False
        if self._lifecycle.is_inherited:
            return False
        share = self._budget_share() or 0.0  # 0 if this process has stopped measuring
        try:
            is_over = (add or self._vote)(share) >= 1.0
        except Exception as error:  # noqa: BLE001 - an error here must not end the training
            pass_on_signals()
            self._cannot_vote = True
            logger.warning(
                "the budget is not applied, the training continues without it: %s", error
            )
            return False
        if is_over:
            self._note_over_budget()
        return is_over

    @harmless
    def _budget_share(self) -> float:
        attempt = self._lifecycle.running
        return attempt.budget_share() if attempt else 0.0

    @harmless
    def _note_over_budget(self) -> None:
        if attempt := self._lifecycle.running:
            attempt.note_over_budget()

    def plan(self, steps: int) -> None:
        """Set the number of optimizer steps that this attempt will make; forecasts need it.

        The second training in an attempt has no forecast.

        Raises:
            TypeError: if ``steps`` is no whole number.
        """
        if not isinstance(steps, Real) or steps % 1 != 0.0:  # ``inf % 1`` is NaN
            raise TypeError(
                f"plan() needs a whole number of optimizer steps, got {steps!r}; pass int(steps)"
            )
        self._plan(int(steps))

    @harmless
    def _plan(self, steps: int) -> None:
        if (attempt := self._lifecycle.running) and not attempt.has_earlier_steps:
            attempt.forecaster.planned_steps = steps

    @harmless
    def epoch(self, number: int) -> None:
        """Report that epoch ``number`` of the training has ended now."""
        if attempt := self._lifecycle.running:
            now_s = attempt.note_alive()
            attempt.recorder.event("epoch", now_s, epoch=number)
            attempt.forecaster.end_epoch(now_s)

    @harmless
    def resumed(self, step: int) -> None:
        """Report that training continues from the checkpoint of optimizer step ``step``.

        A step that is no whole number counts as unknown, with a warning. In the second training of
        an attempt, steps are counted on.
        """
        if (attempt := self._lifecycle.running) and not attempt.has_earlier_steps:
            now_s = attempt.note_alive()
            if isinstance(step, Integral):
                attempt.recorder.event("resume", now_s, step=step)
            else:
                logger.warning(
                    "resumed() needs a whole number of steps, got %s; it counts as unknown; pass "
                    "int(step)",
                    reprlib.repr(step),
                )
            attempt.forecaster.resume()

    @harmless
    def window(self, name: str, start_s: float, end_s: float) -> None:
        """Assign a past span of time and its energy to a phase.

        A span in the future is ignored with a warning. Its times are usually those of another
        clock, such as ``time.time()``.

        Args:
            name: name of the phase, such as ``validation``.
            start_s: start in seconds, as ``now_s()`` returned it.
            end_s: end in seconds, by the same clock; an empty span is ignored.
        """
        attempt = self._lifecycle.running
        if attempt is None:
            return
        now_s = attempt.now_s()
        if not (_is_past(start_s, now_s) and _is_past(end_s, now_s)):
            self._warn_of_window(
                "window(%r) needs two past times of now_s(), got %s and %s, now is %.3f; the "
                "window is ignored; use now_s(), which is time.monotonic(), and not time.time()",
                name,
                reprlib.repr(start_s),
                reprlib.repr(end_s),
                now_s,
            )
        elif end_s > start_s:
            attempt.recorder.window(name, start_s, end_s)

    def _begin_window(self) -> float:
        """Return ``now_s()``, and measure when the GPU gets there: a ``window`` may begin now."""
        now_s = self._clock.monotonic_s()
        self._mark_edge(now_s)
        return now_s

    @harmless
    def _mark_edge(self, now_s: float) -> None:
        if (attempt := self._lifecycle.running) is not None:
            attempt.recorder.mark_edge(now_s)

    def measure(self, name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Return a decorator that measures each call of a function as a phase.

        ::

            @meter.measure("predict")
            def predict(batch): ...

        If decorated functions call each other, the inner phase counts, as with ``phase``. Calls are
        measured while the meter is running, and must be made on one thread.

        Args:
            name: name of the phase.

        Raises:
            TypeError: if the name is missing, or if the decorated function is asynchronous or a
                generator, because the work of its calls is not done when they return.
        """
        if not isinstance(name, str):
            raise TypeError(
                f"measure() needs the name of a phase, got {name!r}; "
                "write @meter.measure('predict')"
            )

        def decorate(function: Callable[P, R]) -> Callable[P, R]:
            _check_measurable(function)

            @functools.wraps(function)
            def measured(*args: P.args, **kwargs: P.kwargs) -> R:
                with self.phase(name):
                    return function(*args, **kwargs)

            return measured

        return decorate

    def scalars(self) -> "Scalars":
        """Return the newest figures by tag; empty before the first readings.

        Energy and emissions are those of the devices that this process measures, over all attempts
        of the run. Most other figures cover the time since the last call, as far as there are
        readings. The tags are listed in ``docs/reference/metrics.md``.
        """
        return with_prefix(self.config.tag_prefix, self._take() or {})

    @harmless
    def _take(self) -> "Scalars":
        last = self._lifecycle.own
        return last.board.take() if last is not None and self._lifecycle.state != "failed" else {}

    def totals(self) -> "Scalars":
        """Return the figures of ``scalars`` for the whole last attempt; empty before ``stop``."""
        return with_prefix(self.config.tag_prefix, self._whole() or {})

    @harmless
    def _whole(self) -> "Scalars":
        last = self._lifecycle.own
        is_known = self._lifecycle.state == "ended"
        return last.board.whole() if last is not None and is_known else {}

    def log(self, step: int) -> "Scalars":
        """Write the figures of ``scalars`` to all outputs, and return them.

        Args:
            step: number of the step to which the outputs assign the figures.
        """
        scalars = self.scalars()
        for output in self._outputs if scalars else ():
            output.write(scalars, step, self._clock.unix_s())
        self._say_news()
        return scalars

    def _say_news(self) -> None:
        """Print a new forecast if there is one; runs on the training thread, like progress bars."""
        attempt = self._lifecycle.running
        forecast = attempt.forecaster.news if attempt else None
        if attempt is None or forecast is None:
            return
        attempt.forecaster.news = None
        if attempt.rank == 0:
            self._endings.tell(str(forecast))

    @harmless
    def _record(self, kind: str, /, **values: Any) -> None:
        """Write an event into the journal, from which the report is computed.

        Args:
            kind: kind of the event, such as ``batch_sizes``.
            values: fields of the event; they must be convertible to JSON.
        """
        if attempt := self._lifecycle.running:
            attempt.recorder.event(kind, attempt.note_alive(), **values)

    @harmless
    def _add_run_logs(self, runs: "RunLogs") -> None:
        """Add figures and files of the report to runs of experiment trackers, after the attempt.

        Call this while the attempt is running, or in ``ending``.
        """
        if attempt := self._lifecycle.own:
            attempt.on_report[attempt.calls] = runs.report
            open_attempts.exit_first()

    @harmless
    def record_metrics(
        self, values: Mapping[str, Any], *, step: int | None = None, epoch: float | None = None
    ) -> None:
        """Record metrics of the training, such as its loss, for the report.

        At most 20 metrics of a call are recorded. Tensors, values that are not finite numbers, and
        figures of this package are ignored. After 1000 calls with the same names, only a part of
        the later calls is recorded.

        Args:
            values: metric names to values; names that contain ``val``, ``eval`` or similar are
                validation metrics.
            step: number of optimizer steps so far; ``None`` if unknown. A value that is no whole
                number counts as unknown, with one warning.
            epoch: number of epochs so far; ``None`` if unknown. A value that is no number counts as
                unknown.
        """
        if attempt := self._lifecycle.running:
            attempt.metrics.record(values, attempt.note_alive(), step, epoch)

    def energy(
        self, start_s: float, end_s: float, scope: str = "total", *, wait: bool = True
    ) -> Energy:
        """Return the energy between two moments of the last attempt.

        The energy is unknown (``energy_j`` is ``None``) before the first start. The resolution in
        time is that of the sensors for the last ten minutes, and one second for earlier moments. If
        the time from start to end is too short for the sensors, ``is_resolved`` is ``False`` and
        the energy is printed as an upper bound, such as ``< 1.2 J``.

        If the sensors have not reported up to the end yet, they are asked for their newest values
        on their own threads. The energy that is still missing up to now is extrapolated, with its
        error; ``method`` then contains ``extrapolated``. A device that has not reported for 2.5
        seconds is not extrapolated: its missing energy lowers ``coverage``.

        Args:
            start_s: start, in seconds of ``time.monotonic()``.
            end_s: end, by the same clock.
            scope: ``gpu``, ``host``, ``machine``, ``total`` or the key of a device.
            wait: whether to ask the sensors and wait for them, for at most 50 ms. Pass ``False`` in
                training hooks.

        Raises:
            ValueError: if the end is not after the start, if the start is in the future, or if the
                scope is unknown.
        """
        last = self._lifecycle.own
        if start_s > (now_s := self.now_s()):
            raise ValueError(
                f"start_s={start_s:.3f} is in the future, now is {now_s:.3f}; "
                "use times of now_s(), which is time.monotonic(), and not of time.time()"
            )
        return last.energy(start_s, end_s, scope, wait=wait) if last else Energy(energy_j=None)

    def _wait_until_seen(self, t_s: float, timeout_s: float) -> bool:
        """Wait until the sensors have reported up to a moment; do not call this in training hooks.

        Args:
            t_s: the moment, in seconds of ``time.monotonic()``.
            timeout_s: maximum wait in seconds.

        Returns:
            Whether the sensors have reported up to that moment; ``False`` if no attempt is running.
        """
        attempt = self._lifecycle.running
        return attempt is not None and attempt.wait_until_seen(t_s, timeout_s)

    @harmless
    def stop(self, error: BaseException | None = None) -> None:
        """End the attempt: read every sensor a last time, write the totals, close the journal.

        This waits for the last readings, at most a few seconds. A signal handler may call it at any
        time. If callbacks have used this meter since ``start``, another process then makes the
        report, as after ``ending``.

        Args:
            error: the exception that ended the training; ``None`` if the training succeeded.
        """
        self._endings.stop(error)

    def ending(self, error: BaseException | None = None) -> AbstractContextManager[Ending]:
        """End the attempt without waiting for its journal, and have its report made.

        Do nothing if no attempt is running. In the block, ``scalars``, ``log`` and ``totals``
        return the last figures; they are extrapolated if sensors do not answer within 15 ms. After
        the block, the journal is closed on its own thread. Rank 0 then prints a summary, and
        another process makes the report: see ``wait_for_report``.

        Args:
            error: the exception that ended the training; ``None`` if the training succeeded.
        """
        return self._endings.of_attempt(error)

    def _end_call(self, error: BaseException | None = None) -> AbstractContextManager[Ending]:
        """End a framework's call, and the attempt if it began in the call; see ``Endings``."""
        return self._endings.of_call(error)

    def wait_for_report(self, timeout_s: float = 60.0) -> Path | None:
        """Wait for the report of the last attempt, which another process makes after the training.

        If the training logs to W&B, MLflow or another tracker, the report is then in its run, too.
        Without this, the report is complete when the interpreter has exited. It is not needed
        before ``report`` and ``save_report``.

        Args:
            timeout_s: maximum wait in seconds.

        Returns:
            The path of ``energy_report.html``; ``None`` if there is no such file, for example
            because the meter is still running, or has run without a callback until ``stop``.
        """
        return self._endings.wait_for_report(timeout_s)

    def close(self) -> None:
        """Close the outputs; the meter can be started again afterwards.

        In a forked child, nothing happens until the child calls ``start``.
        """
        for output in () if self._lifecycle.is_inherited else self._outputs:
            output.close()

    def report(self) -> "EnergyReport":
        """Return the report of the run so far, computed from its journals.

        The report of a running meter ends at the newest moment at which the energy of all phases is
        final: ``report.run.duration_s`` after the start, a few seconds before now. After the end of
        the training, this method waits up to 5 s for the journals of other processes.

        Raises:
            JournalError: if the meter has never been started.
        """
        from energy_callbacks.report import build

        self._lifecycle.end_if_left()
        if (folder := self.run_folder) is None:
            why = _DISABLED if is_disabled() else _NOT_STARTED
            raise JournalError(f"there is nothing yet: {why}")
        self._complete_journals()
        return build(folder)

    @harmless
    def _complete_journals(self) -> None:
        """Write what the report needs; after the end of the attempt, wait for all ranks."""
        if attempt := self._lifecycle.running:
            attempt.thread.write_phases(_PHASES_S)
        elif last := self._lifecycle.own:
            last.thread.wait_until_over()
            meter_reports.wait_for_ranks(last)

    @harmless
    def save_report(self) -> str | None:
        """Write ``energy_report.*`` into the run folder; log a warning if nothing can be written.

        Returns:
            A summary in one line; ``None`` if this process has measured nothing or an error
            occurred.
        """
        if (last := self._lifecycle.own) is not None:
            self._lifecycle.end_if_left()
            self._complete_journals()
            return meter_reports.save(last.run_folder)
        if not is_disabled():
            logger.warning("no report is written: %s", _NOT_STARTED)
        return None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.stop(error)
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a copy or pickle, without attempts, threads and open files."""
        state = self.__dict__.copy()
        lifecycle = Lifecycle()
        endings = Endings(lifecycle, self.config, self._clock)
        return state | {"_lifecycle": lifecycle, "_endings": endings}


def _config(config: EnergyConfig | None, settings: ConfigSettings) -> EnergyConfig:
    """Return ``config``, or the settings as one object.

    Raises:
        ValueError: if both are given.
        TypeError: if a setting is unknown, or if ``config`` is no ``EnergyConfig``.
    """
    if config is None:
        check_names("EnergyMeter", settings, _KEYWORDS)
        given: dict[str, Any] = {k: v for k, v in settings.items() if v is not None}
        return EnergyConfig(**given)
    if not isinstance(config, EnergyConfig):
        raise TypeError(
            f"config must be EnergyConfig(...), got {config!r}; "
            "settings by name need no config=, as in EnergyMeter(country='DEU')"
        )
    if settings:
        raise ValueError(
            f"config= has all settings, but {', '.join(settings)} was also given; "
            "pass settings either in config= or by name"
        )
    return config


def _check_state(state: Mapping[str, Any] | None) -> None:
    if state is not None and not isinstance(state, Mapping):
        raise TypeError(
            f"state must be a result of state(), got {state!r}; pass the value from your checkpoint"
        )
    if state and not state.get("run_id"):
        raise ValueError(
            f"state must be a result of state(), got a dictionary with {', '.join(map(str, state))}"
            "; pass the part of your checkpoint that state() has returned"
        )


def _is_past(t_s: float, now_s: float) -> bool:
    return isinstance(t_s, Real) and -math.inf < t_s <= now_s


def _check_measurable(function: Callable[..., object]) -> None:
    checks = (
        inspect.iscoroutinefunction,
        inspect.isgeneratorfunction,
        inspect.isasyncgenfunction,
    )
    if any(check(function) for check in checks):
        raise TypeError(
            "measure() needs a function that has finished its work when it returns, got "
            f"{function!r}; call window() with the start and end of the work instead"
        )
