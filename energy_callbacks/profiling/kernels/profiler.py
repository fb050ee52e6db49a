"""``KernelProfiler``: records kernels in a few short windows with the framework's profiler.

A window consists of a few consecutive steps: first warm-up steps, then recorded (active) steps.
"""

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Final

from energy_callbacks.accounting.attempt import ActiveAttempt
from energy_callbacks.core import atomic_files
from energy_callbacks.core.guard import logger
from energy_callbacks.core.settings.checks import check_count
from energy_callbacks.profiling.common.attempt_profiler import AttemptProfiler
from energy_callbacks.profiling.frameworks import protocol
from energy_callbacks.profiling.kernels import select_backend
from energy_callbacks.profiling.kernels.capture import Capture, KernelRun
from energy_callbacks.profiling.kernels.findings import record
from energy_callbacks.profiling.kernels.schedule import Schedule
from energy_callbacks.profiling.kernels.select_backend import FRAMEWORKS, Framework
from energy_callbacks.sensing.clock import clock_offset

# Maximum number of waits for data that are kept per window; a training loop may report any number.
_MOST_WAITS: Final = 1000
# Settings that are whole numbers: their least values, and why, or what to do.
_COUNTS: Final = (
    ("warm_up_steps", 1, "the first step under a profiler is not typical"),
    ("active_steps", 2, "a whole step lasts from its beginning to that of the next step"),
    ("max_events", 1, "leave it out for the default"),
    ("max_trace_bytes", 1, "leave it out for the default"),
)


@dataclass(eq=False, kw_only=True)
class KernelProfiler(AttemptProfiler["_Run"]):
    """Measures the time of each kernel and the idle time by cause, and attributes energy to both.

    ::

        GpuEnergyCallback(profilers=[KernelProfiler()])

    The profiler records a few windows and is off between them. The cost of a window is the time
    that it adds to the training. Each window after the first is postponed until the cost of all
    windows, including its own expected cost, is at most the share ``max_overhead`` of the
    training's time.

    Args:
        windows_after: numbers of optimizer steps after which a window may open, ascending.
        warm_up_steps: number of steps at the beginning of a window in which the framework's
            profiler starts; they are not recorded.
        active_steps: number of recorded steps of a window.
        max_overhead: time that windows may add to the training, as a share of the training's time.
            This limit does not apply to the first window.
        max_events: maximum number of events of a window's trace, for PyTorch only. A trace with
            more events is not kept, and no more windows are recorded.
        max_trace_bytes: maximum size of the traces of all windows together, before compression. A
            trace that would exceed this total is not kept, and no more windows are recorded.
        all_ranks: whether to profile every rank instead of rank 0 only.
        flops_per_step: FLOPs of an optimizer step over all devices of this process, for the
            roofline; ``None`` if unknown.
        framework: framework whose profiler is used; ``None`` for the framework that this process
            uses.

    Raises:
        ValueError: if a setting is out of range, or is not a whole number.
    """

    windows_after: Sequence[int] = (10, 50, 250, 1000)
    warm_up_steps: int = 2
    active_steps: int = 3
    max_overhead: float = 0.05
    max_events: int = 500_000
    max_trace_bytes: int = 150 * 2**20
    all_ranks: bool = False
    flops_per_step: float | None = None
    framework: Framework | None = None

    def __post_init__(self) -> None:
        after = self.windows_after
        steps = list(after) if isinstance(after, Iterable) else []
        is_whole = bool(steps) and all(isinstance(one, Integral) for one in steps)
        if not is_whole or steps != sorted(set(steps)) or steps[0] < 1:
            raise ValueError(
                "windows_after must be increasing numbers of steps from 1 on, got "
                f"{after!r}; such as (10, 50, 250)"
            )
        for name, least, advice in _COUNTS:
            check_count(name, getattr(self, name), least, advice)
        if not 0.0 < self.max_overhead <= 1.0:
            raise ValueError(
                "max_overhead must be a share above 0 and at most 1, got "
                f"{self.max_overhead!r}; such as 0.05"
            )
        if self.framework is not None and self.framework not in FRAMEWORKS:
            raise ValueError(f"framework must be one of {FRAMEWORKS}, got {self.framework!r}")
        if self.flops_per_step is not None and not 0.0 < self.flops_per_step < math.inf:
            raise ValueError(
                f"flops_per_step must be above 0 and finite, got {self.flops_per_step!r}; leave "
                "it out if it is not known"
            )

    def _begin(self, meter: ActiveAttempt) -> "_Run | None":
        if meter.run_folder is None or not (self.all_ranks or meter.rank == 0):
            return None
        length = self.warm_up_steps + self.active_steps
        schedule = Schedule(self.windows_after, length, self.max_overhead)
        return _Run(
            meter=meter,
            folder=meter.run_folder / "profile",
            schedule=schedule,
            flops_per_step=self.flops_per_step,
            settings=self,
        )


@dataclass(slots=True, kw_only=True)
class _Run(KernelRun):
    """Opens and closes the windows of one attempt.

    Attributes:
        settings: settings of the profiler.
        recorder: recorder of the open window; ``None`` if no window is open.
        used_bytes: size of the traces of all windows so far, before compression.
        opened_s: start of the open window, in seconds of the meter's clock.
        waits_s: start and end of each wait for data in the open window, by the same clock.
        done_s: start of the current wait for data, by the same clock; ``None`` if there is none, or
            if a window has opened during this wait.
    """

    settings: KernelProfiler
    recorder: protocol.TraceRecorder | None = None
    used_bytes: int = 0
    opened_s: float = 0.0
    waits_s: list[tuple[float, float]] = field(default_factory=list)
    done_s: float | None = None

    def mark(self, name: str, t_s: float) -> None:
        if name.startswith("phase:"):
            self._abort(t_s)
        elif name == "batch_done":
            self.done_s = t_s
        elif name == "data_ready" and self.done_s is not None:
            if self.recorder is not None and len(self.waits_s) < _MOST_WAITS:
                self.waits_s.append((self.done_s, t_s))
            self.done_s = None

    def step(self, t_s: float) -> None:
        action = self.schedule.step(t_s)
        try:
            if action == "open":
                self._open(t_s)
            elif action == "step" and self.recorder is not None:
                self.recorder.step()
            elif action == "close":
                self._close()
        except protocol.OccupiedError as error:
            is_own = isinstance(error, protocol.NotNowError)
            self._give_up_window(error, is_expected=is_own)
            self.schedule.put_off(soon=is_own)
        except protocol.TooLargeError as error:
            self._give_up_window(error)
            self.schedule.close_for_good()
        except BaseException:
            self._abort()
            raise
        if self.captures and self.recorder is None:
            self.captures[-1].keep_readings(self.meter, t_s)

    def _open(self, t_s: float) -> None:
        atomic_files.make_folder(self.folder)
        settings, name = self.settings, f"kernels-{self.meter.rank}-{len(self.captures) + 1}"
        limits = protocol.WindowLimits(
            warm_up_steps=settings.warm_up_steps,
            active_steps=settings.active_steps,
            max_events=settings.max_events,
            max_bytes=settings.max_trace_bytes - self.used_bytes,
        )
        framework = settings.framework or select_backend.framework()
        self.recorder = select_backend.recorder(framework, self.folder / name, limits)
        self.framework = self.recorder.framework
        self.opened_s, self.waits_s, self.done_s = t_s, [], None
        if self.captures:
            self.captures[-1].keep_readings(self.meter, t_s, at_once=True)
        self.recorder.open()

    def _give_up_window(self, error: Exception, *, is_expected: bool = False) -> None:
        if not is_expected and str(error) not in self.notes:
            self.notes.append(str(error))
            logger.warning("%s", error)
        self.recorder = None

    def _close(self) -> None:
        if self.recorder is None:
            return
        path = self.recorder.close()
        self.recorder = None
        self.used_bytes += path.stat().st_size
        now_s, offset_s = clock_offset(self.meter.clock)
        capture = Capture(
            path=path,
            start_s=self.opened_s,
            end_s=now_s,
            steps=self.settings.active_steps,
            offset_s=offset_s,
            waits_s=self.waits_s,
        )
        self.captures.append(capture)

    def _abort(self, t_s: float | None = None) -> None:
        """Discard the open window, because of another phase, the end of the attempt, or an error.

        Args:
            t_s: end of the window, by the meter's clock; ``None`` for the end of the last step.
        """
        recorder, self.recorder = self.recorder, None
        self.schedule.abort(t_s)
        if recorder is not None:
            recorder.abort()

    def stop(self) -> None:
        try:
            self._abort()
        except RuntimeError as error:  # for example, another thread has ended the profiler
            self.notes.append(f"a window could not be ended: {error}")
        began_s = time.monotonic()
        profile = record(self)
        logger.info("kernel profile computed in %.1f s", time.monotonic() - began_s)
        self.meter.record_profile("kernels", profile)
