"""``KernelProfiler``: the framework's own profiler in a few short windows, and energy with it."""

import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from energy_callbacks.accounting.attempt import ActiveAttempt
from energy_callbacks.profiling.frameworks import select_backend
from energy_callbacks.profiling.frameworks.select_backend import FRAMEWORKS, Framework
from energy_callbacks.profiling.kernels.capture import Capture, captured
from energy_callbacks.profiling.kernels.findings import Findings, record
from energy_callbacks.profiling.kernels.protocol import (
    NotNowError,
    OccupiedError,
    TooLargeError,
    TraceRecorder,
)
from energy_callbacks.profiling.kernels.schedule import Schedule

logger = logging.getLogger("energy_callbacks")

# A loop may report more waits than there are batches in a window; not all are needed.
_MOST_WAITS: Final = 1000
_PATIENCE_S: Final = 6.0


class KernelProfiler:
    """Which kernels a training runs, what its device waits for, and whose the joules are.

    ::

        GpuEnergyCallback(profile=[KernelProfiler()])

    A few windows of some steps each are recorded, spread over the run; between them no profiler
    runs. A window is put off until all of them together cost less than ``max_overhead``.

    Args:
        windows_after: optimizer steps after which a window may open, rising.
        warm_up_steps: of a window, in which the profiler starts; they are thrown away.
        active_steps: of a window, that are recorded.
        max_overhead: share of the training's time that windows may cost, on average.
        max_events: of a window's trace; beyond it none is kept and no more are taken.
        max_trace_bytes: limit of the traces before compression, of all windows together.
        all_ranks: profile each rank, not the first alone.
        flops_per_step: of an optimizer step, over all devices of this process, if they are
            known: for the roofline.
        framework: whose profiler; ``None`` takes the one that the process trains with.

    Raises:
        ValueError: for settings with which nothing can be recorded.
    """

    def __init__(
        self,
        *,
        windows_after: Sequence[int] = (10, 50, 250, 1000),
        warm_up_steps: int = 2,
        active_steps: int = 3,
        max_overhead: float = 0.05,
        max_events: int = 500_000,
        max_trace_bytes: int = 150 * 2**20,
        all_ranks: bool = False,
        flops_per_step: float | None = None,
        framework: Framework | None = None,
    ) -> None:
        _check(windows_after, warm_up_steps, active_steps, max_overhead)
        if framework is not None and framework not in FRAMEWORKS:
            raise ValueError(f"framework must be one of {FRAMEWORKS}, got {framework!r}")
        if flops_per_step is not None and not flops_per_step > 0.0:
            raise ValueError(
                f"flops_per_step must be above zero, got {flops_per_step!r}; leave it out where "
                "it is not known"
            )
        self._windows_after = tuple(windows_after)
        self._warm_up_steps = warm_up_steps
        self._active_steps = active_steps
        self._max_overhead = max_overhead
        self._max_events = max_events
        self._max_trace_bytes = max_trace_bytes
        self._all_ranks = all_ranks
        self._flops_per_step = flops_per_step
        self._framework: Framework | None = framework
        self._run: _Run | None = None

    def start(self, meter: ActiveAttempt) -> None:
        """See ``Profiler``."""
        self._run = None
        if self._all_ranks or meter.rank == 0:
            length = self._warm_up_steps + self._active_steps
            schedule = Schedule(self._windows_after, length, self._max_overhead)
            self._run = _Run(self, meter, schedule, meter.run_folder / "profile")

    def mark(self, name: str, t_s: float) -> None:
        """See ``Profiler``."""
        if self._run is not None:
            self._run.mark(name, t_s)

    def step(self, t_s: float) -> None:
        """See ``Profiler``."""
        if self._run is not None:
            self._run.step(t_s)

    def stop(self) -> None:
        """See ``Profiler``."""
        run, self._run = self._run, None
        if run is not None:
            run.stop()

    def recorder(self, path: Path, left_bytes: int) -> TraceRecorder:
        """The framework's profiler for one window."""
        return select_backend.recorder(
            self._framework or select_backend.framework(),
            path,
            warm_up_steps=self._warm_up_steps,
            active_steps=self._active_steps,
            max_events=self._max_events,
            max_bytes=left_bytes,
        )

    @property
    def max_trace_bytes(self) -> int:
        """Of all windows together."""
        return self._max_trace_bytes

    @property
    def active_steps(self) -> int:
        """Recorded in a window."""
        return self._active_steps

    @property
    def flops_per_step(self) -> float | None:
        """As set by the user."""
        return self._flops_per_step

    def __getstate__(self) -> dict[str, Any]:
        """A copy profiles nothing yet."""
        return self.__dict__ | {"_run": None}


class _Run:
    """One attempt."""

    def __init__(
        self, settings: KernelProfiler, meter: ActiveAttempt, schedule: Schedule, folder: Path
    ) -> None:
        self._settings = settings
        self._meter = meter
        self._schedule = schedule
        self._folder = folder
        self._recorder: TraceRecorder | None = None
        self._framework: str | None = None
        self._captures: list[Capture] = []
        self._used_bytes = 0
        self._opened_s = 0.0
        self._waits_s: list[tuple[float, float]] = []
        self._done_s: float | None = None
        self._notes: list[str] = []

    def mark(self, name: str, t_s: float) -> None:
        if name.startswith("phase:"):
            self._abort(t_s)
        elif name == "batch_done":
            self._done_s = t_s
        elif name == "data_ready" and self._done_s is not None:
            if self._recorder is not None and len(self._waits_s) < _MOST_WAITS:
                self._waits_s.append((self._done_s, t_s))
            self._done_s = None

    def step(self, t_s: float) -> None:
        action = self._schedule.step(t_s)
        try:
            if action == "open":
                self._open(t_s)
            elif action == "step" and self._recorder is not None:
                self._recorder.step()
            elif action == "close":
                self._close()
        except OccupiedError as error:
            self._give_way(error)
        except TooLargeError as error:
            self._notes.append(str(error))
            logger.warning("%s", error)
            self._recorder = None
            self._schedule.close_for_good()
        except BaseException:
            self._abort()
            raise
        if self._captures and self._recorder is None:
            self._captures[-1].look(self._meter, t_s)

    def _open(self, t_s: float) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        left_bytes = self._settings.max_trace_bytes - self._used_bytes
        name = f"kernels-{self._meter.rank}-{len(self._captures) + 1}"
        self._recorder = self._settings.recorder(self._folder / name, left_bytes)
        self._framework = self._recorder.framework
        self._opened_s, self._waits_s, self._done_s = t_s, [], None
        if self._captures:
            self._captures[-1].look(self._meter, t_s, at_once=True)
        self._recorder.open()

    def _give_way(self, error: OccupiedError) -> None:
        is_ours = isinstance(error, NotNowError)
        if not is_ours and str(error) not in self._notes:
            self._notes.append(str(error))
            logger.warning("%s", error)
        self._recorder = None
        self._schedule.put_off(soon=is_ours)

    def _close(self) -> None:
        recorder = self._recorder
        if recorder is None:
            return
        path = recorder.close()
        self._recorder = None
        self._used_bytes += path.stat().st_size
        steps = self._settings.active_steps
        self._captures.append(captured(self._meter, path, self._opened_s, steps, self._waits_s))

    def _abort(self, t_s: float | None = None) -> None:
        """A window in which something else happens is no window of training."""
        recorder, self._recorder = self._recorder, None
        self._schedule.abort(t_s)
        if recorder is not None:
            recorder.abort()

    def stop(self) -> None:
        try:
            self._abort()
        except RuntimeError as error:  # as when another thread ends what this one began
            self._notes.append(f"a window could not be ended: {error}")
        began_s = time.monotonic()
        self._look_at_last()
        found = Findings(
            framework=self._framework,
            captures=self._captures,
            schedule=self._schedule,
            flops_per_step=self._settings.flops_per_step,
            notes=self._notes,
        )
        told = record(found, self._meter, self._folder)
        logger.info("kernel profile worked out in %.1f s", time.monotonic() - began_s)
        self._meter.record_profile("kernels", told)

    def _look_at_last(self) -> None:
        if self._captures and self._captures[-1].tracks is None:
            last = self._captures[-1]
            self._meter.wait_until_seen(min(last.end_s, self._meter.now_s()), _PATIENCE_S)
            last.look(self._meter, self._meter.now_s(), at_once=True)


def _check(
    windows_after: Sequence[int], warm_up_steps: int, active_steps: int, max_overhead: float
) -> None:
    rising = list(windows_after)
    if not rising or rising != sorted(set(rising)) or rising[0] < 1:
        raise ValueError(
            f"windows_after must be steps that rise from 1 on, got {windows_after!r}; "
            "such as (10, 50, 250)"
        )
    if warm_up_steps < 1:
        raise ValueError(
            f"warm_up_steps must be 1 or more, got {warm_up_steps!r}: the first step of a profiler "
            "is not like the others"
        )
    if active_steps < 2:
        raise ValueError(
            f"active_steps must be 2 or more, got {active_steps!r}: a whole step reaches from the "
            "beginning of one to that of the next"
        )
    if not 0.0 < max_overhead <= 1.0:
        raise ValueError(f"max_overhead must be a share above 0, got {max_overhead!r}; use 0.05")
