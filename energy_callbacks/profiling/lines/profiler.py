"""``LineProfiler``: attributes the energy of an attempt to lines of source."""

import time
from dataclasses import dataclass

from energy_callbacks.accounting.attempt import ActiveAttempt
from energy_callbacks.core.guard import logger, pass_on_signals
from energy_callbacks.core.settings.checks import check_count
from energy_callbacks.profiling.common.attempt_profiler import AttemptProfiler
from energy_callbacks.profiling.frameworks.torch_kernels import KernelWindows
from energy_callbacks.profiling.lines import record
from energy_callbacks.profiling.lines.attribution import Attribution
from energy_callbacks.profiling.lines.stack_sampler import StackSampler
from energy_callbacks.profiling.lines.stacks import stacks_of
from energy_callbacks.profiling.lines.tally import LineTally
from energy_callbacks.report.model.profile_lines import LineProfile

# Maximum time to wait for sensor readings, in seconds.
_PATIENCE_S = 6.0


@dataclass(eq=False, kw_only=True)
class LineProfiler(AttemptProfiler["_LineRun"]):
    """Attributes energy to lines and functions of your files; a line includes its library calls.

    ::

        GpuEnergyCallback(profilers=[LineProfiler()])

    The profiler reads the stack of the main thread ``rate_hz`` times a second, without signals. It
    records the kernels of a few steps to find the lines that keep the GPU busy. Only rank 0 is
    profiled. See ``docs/lines.md``.

    Args:
        rate_hz: mean number of stack samples per second; reduced if ``max_overhead`` requires it.
        windows: maximum number of windows in which GPU kernels are recorded; 0 to record none.
        window_steps: number of steps recorded in each window.
        max_overhead: share of the time that stack samples may take. Windows may take the same share
            in addition: another window opens only if the cost of all windows so far is at most this
            share. This limit does not apply to the first window.

    Raises:
        ValueError: if a setting is out of range, or is not a whole number.
    """

    rate_hz: float = 25.0
    windows: int = 2
    window_steps: int = 2
    max_overhead: float = 0.01

    def __post_init__(self) -> None:
        if not 1.0 <= self.rate_hz <= 1000.0:
            raise ValueError(
                f"rate_hz must be from 1 to 1000 samples per second, got {self.rate_hz!r}; try 25"
            )
        check_count("windows", self.windows, 0, "0 records no kernels")
        check_count("window_steps", self.window_steps, 1, "windows=0 records no kernels")
        if not 0.0 < self.max_overhead < 1.0:
            raise ValueError(
                "max_overhead must be a share above 0 and below 1, got "
                f"{self.max_overhead!r}; such as 0.01"
            )

    def _begin(self, meter: ActiveAttempt) -> "_LineRun | None":
        if meter.rank != 0:
            return None
        try:
            return _LineRun(self, meter)
        except RuntimeError as error:
            logger.warning("the energy by line of source is not computed: %s", error)
            return None


class _LineRun:
    """Profiles one attempt by line; see ``ProfilerRun`` (``common/attempt_profiler.py``)."""

    def __init__(self, settings: LineProfiler, meter: ActiveAttempt) -> None:
        self._meter = meter
        self._windows = KernelWindows(
            settings.windows, settings.window_steps, settings.max_overhead
        )
        self._start_s, self._process_s = meter.now_s(), time.process_time()
        self._phase: str | None = None
        self._phase_s = self._start_s
        self._train: list[tuple[float, float]] = []
        self._tally = LineTally(self._start_s)
        self._sampler = StackSampler(self._tally.take, settings.rate_hz, settings.max_overhead)
        self._sampler.start()

    def mark(self, name: str, t_s: float) -> None:
        """Record the spans of the phase ``train``."""
        if not name.startswith("phase:"):
            return
        if self._phase == "phase:train":
            self._train.append((self._phase_s, t_s))
        self._phase, self._phase_s = name, t_s

    def step(self, t_s: float) -> None:  # noqa: ARG002 - required by the protocol
        """Open or close a window in which kernels are recorded, if one is due."""
        try:
            self._windows.step(is_training=self._phase in ("phase:train", None))
        except Exception as error:  # noqa: BLE001 - host energy is attributed without windows
            pass_on_signals()
            logger.warning("LineProfiler records no kernels: %r", error)
            self._windows.close()

    def stop(self) -> None:
        """Attribute the energy to lines, and record the profile."""
        end_s, process_s = self._meter.now_s(), time.process_time() - self._process_s
        self._sampler.stop()
        self._windows.close()
        self.mark("phase:", end_s)  # ends the current phase
        if end_s <= self._start_s:
            return
        self._meter.wait_until_seen(end_s, _PATIENCE_S)
        attribution = Attribution(self._meter, self._start_s, end_s)
        count, kernel_s, busy_s = self._windows.result()
        scopes = (
            attribution.host(self._tally, process_s),
            attribution.gpu(self._train, kernel_s, busy_s * self._windows.seen_steps),
        )
        shares, duration_s = attribution.shares, end_s - self._start_s
        profile = LineProfile(
            duration_s=duration_s,
            looks=self._sampler.looks,
            cost_share=self._sampler.cost_s / duration_s,
            windows=count,
            scopes=tuple(scope for scope in scopes if scope is not None),
            lines=record.source_lines(shares),
            functions=record.functions(shares),
            files=(),
        )
        stacks = stacks_of(self._tally, shares)
        self._meter.record_profile("lines", record.write(profile, stacks, self._meter.run_folder))
