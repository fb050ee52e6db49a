"""The profiler that a callback or meter is given: which of the user's lines used the energy."""

import logging
import time
from typing import Any

from energy_callbacks.accounting.attempt import ActiveAttempt
from energy_callbacks.core.guard import pass_on_signals
from energy_callbacks.profiling.lines import attribution, record
from energy_callbacks.profiling.lines.joules import Shares
from energy_callbacks.profiling.lines.stack_sampler import StackSampler
from energy_callbacks.profiling.lines.tally import LineTally
from energy_callbacks.profiling.lines.windows import Windows

logger = logging.getLogger("energy_callbacks")

_PATIENCE_S = 6.0


class LineProfiler:
    """Joules by line and function of your own files; libraries count for the line that calls them.

    ::

        GpuEnergyCallback(profile=[LineProfiler()])

    It reads the stack of the main thread 25 times a second, without signals, and records the
    kernels of a few steps to know which lines keep the GPU busy. Of several ranks the first is
    followed. See ``docs/lines.md``.

    Args:
        rate_hz: how many times a second the stack is read, at most.
        windows: how many times kernels are recorded; 0 for never.
        window_steps: steps that are recorded in each.
        max_overhead: share of the time that reading may cost, and windows again as much; the
            first window opens in any case.

    Raises:
        ValueError: for settings that make no sense.
    """

    def __init__(
        self,
        *,
        rate_hz: float = 25.0,
        windows: int = 2,
        window_steps: int = 2,
        max_overhead: float = 0.01,
    ) -> None:
        if not 1.0 <= rate_hz <= 1000.0:
            raise ValueError(f"rate_hz is from 1 to 1000 looks a second: got {rate_hz!r}; try 25")
        if windows < 0 or window_steps < 1 or not 0.0 < max_overhead < 1.0:
            raise ValueError(
                f"got windows={windows!r}, window_steps={window_steps!r}, "
                f"max_overhead={max_overhead!r}; give no fewer than 0 windows of 1 step, and a "
                "share between 0 and 1"
            )
        self._settings = (rate_hz, windows, window_steps, max_overhead)
        self._forget()

    @property
    def rate_hz(self) -> float:
        """How many times a second the stack is read."""
        return self._settings[0]

    def _forget(self) -> None:
        self._meter: ActiveAttempt | None = None
        self._asker: StackSampler | None = None
        self._tally: LineTally | None = None
        self._windows: Windows | None = None
        self._start_s = self._process_s = 0.0
        self._phase: str | None = None
        self._train: list[tuple[float, float]] = []
        self._train_s: float | None = None

    def start(self, meter: ActiveAttempt) -> None:
        """See ``Profiler``."""
        self._forget()
        if meter.rank != 0:
            return
        rate_hz, most, steps, max_overhead = self._settings
        start_s = meter.now_s()
        tally = LineTally(start_s)
        try:
            asker = StackSampler(tally.take, rate_hz, max_overhead)
        except RuntimeError as error:
            logger.warning("no energy by lines of source: %s", error)
            return
        self._meter, self._asker, self._tally = meter, asker, tally
        self._windows = Windows(most, steps, max_overhead)
        self._start_s, self._process_s = start_s, time.process_time()
        asker.start()

    def mark(self, name: str, t_s: float) -> None:
        """See ``Profiler``."""
        if not name.startswith("phase:"):
            return
        if self._train_s is not None:
            self._train.append((self._train_s, t_s))
        self._phase = name.removeprefix("phase:")
        self._train_s = t_s if self._phase == "train" else None

    def step(self, t_s: float) -> None:  # noqa: ARG002 - as the protocol has it
        """See ``Profiler``."""
        if self._windows is None:
            return
        try:
            self._windows.step(is_training=self._phase in ("train", None))
        except Exception as error:  # noqa: BLE001 - lines of the host are known without
            pass_on_signals()
            logger.warning("no kernels of lines: %r", error)
            self._windows.close()

    def stop(self) -> None:
        """See ``Profiler``."""
        meter, asker, tally, windows = self._meter, self._asker, self._tally, self._windows
        if meter is None or asker is None or tally is None or windows is None:
            return
        end_s, process_s = meter.now_s(), time.process_time() - self._process_s
        asker.stop()
        windows.close()
        if self._train_s is not None:
            self._train.append((self._train_s, end_s))
        if end_s > self._start_s:
            meter.wait_until_seen(end_s, _PATIENCE_S)
            run = attribution.TrackedRun(
                meter=meter,
                start_s=self._start_s,
                end_s=end_s,
                process_s=process_s,
                train=tuple(self._train),
            )
            meter.record_profile("lines", _recorded(run, asker, tally, windows))
        self._forget()

    def __getstate__(self) -> dict[str, Any]:
        """A copy has the settings; what runs stays with the original."""
        return {"_settings": self._settings}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._settings = state["_settings"]
        self._forget()


def _recorded(
    run: attribution.TrackedRun, asker: StackSampler, tally: LineTally, windows: Windows
) -> dict[str, Any]:
    count, kernel_s, busy_s = windows.result()
    shares: Shares = {}
    totals = {"host": attribution.host(run, tally, shares)}
    totals["gpu"] = attribution.gpu(run, kernel_s, busy_s * windows.seen_steps, shares)
    found = record.LineFindings(
        duration_s=run.end_s - run.start_s,
        looks=asker.looks,
        cost_s=asker.cost_s,
        windows=count,
        totals={scope: total for scope, total in totals.items() if total is not None},
        shares=shares,
        stacks=record.stacks_of(tally, shares),
    )
    return record.write(found, run.meter.run_folder)
