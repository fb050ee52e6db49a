"""Runs a training step at one batch size until its time, energy and memory are known.

::

    warm up      1, 2, 4, ... steps, until two blocks in a row take the same time a step
    measure      blocks of steps, the device synchronised at their edges alone, until the mean
                 time and the energy are known well enough, or the trial has taken its time
    afterwards   the training is put back as it was, whatever happened
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np

from energy_callbacks.accounting.metrics.energy_sums import whole_window
from energy_callbacks.core.records import Energy
from energy_callbacks.meter import EnergyMeter
from energy_callbacks.tuning import accelerator
from energy_callbacks.tuning.out_of_memory import free_memory, is_out_of_memory, said
from energy_callbacks.tuning.search.trial import Trial

# Two blocks that take the same time to this share: clocks, caches and compilers have settled.
_SETTLED: Final = 0.03
_LEAST_WARM_UP: Final = 4  # steps: libraries try kernels, compilers compile
_MOST_WARM_UP: Final = 12  # blocks
_FEWEST_BLOCKS: Final = 4
_REASON: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a trial may take.

    Attributes:
        block_s: a block of steps takes this long or longer, s. At its edges the device waits for
            the host, some tens of microseconds.
        least_s: measured at least, s: less is too short for slow sensors.
        most_s: measured at most, s.
        error: standard error, as a share of the mean, that is good enough for time and energy.
        seen_s: longest wait until the sensors have reported a trial, s.
    """

    block_s: float = 0.25
    least_s: float = 2.0
    most_s: float = 10.0
    error: float = 0.01
    seen_s: float = 3.0

    def __post_init__(self) -> None:
        for name in ("block_s", "least_s", "most_s", "error", "seen_s"):
            value = getattr(self, name)
            if not (isinstance(value, int | float) and value > 0 and math.isfinite(value)):
                raise ValueError(f"{name} must be a positive number, got {value!r}")
        if self.most_s < self.least_s:
            raise ValueError(
                f"most_s={self.most_s!r} lies below least_s={self.least_s!r}; make it larger"
            )


class Bench:
    """Tries batch sizes.

    Args:
        step: one training step with this many samples; a failure for want of memory makes a trial,
            any other passes through.
        meter: running; it measures the energy.
        restore: puts the training back as it was.
        patience: how long a trial may take.
        worst: one training step with this many of the samples that need the most memory; each trial
            begins with it.
        whole: samples of a step if that is fixed: ``step`` then also gets how many times a
            size fits into it.
        steps_per_call: how many steps a call of ``step`` runs.
    """

    def __init__(
        self,
        step: Callable[..., Any],
        meter: EnergyMeter,
        restore: Callable[[], None] = lambda: None,
        patience: Patience | None = None,
        *,
        worst: Callable[[int], Any] | None = None,
        whole: int | None = None,
        steps_per_call: int = 1,
    ) -> None:
        self._step = step
        self._steps_per_call = steps_per_call
        self._worst = worst
        self._whole = whole
        self._meter = meter
        self._restore = restore
        self.patience = patience or Patience()

    def run(self, size: int) -> Trial:
        """One trial; afterwards the training is as it was.

        Raises:
            Exception: whatever ``step`` raises that is no want of memory.
        """
        start_s = self._meter.now_s()
        accelerator.forget_compiled()
        accelerator.reset_peak()
        reason = None
        trial = Trial(size=size, accumulation=self._accumulation(size))
        try:
            trial = self._measured(size)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            reason = f"{type(error).__name__}: {said(error)}"
            free_memory(error)
        finally:
            self._restore()
        if reason is not None:
            trial = replace(trial, status="out_of_memory", reason=_short(reason))
        return replace(trial, cost_s=self._meter.now_s() - start_s)

    def _accumulation(self, size: int) -> int:
        return 1 if self._whole is None else self._whole // size

    def _measured(self, size: int) -> Trial:
        if self._worst is not None:
            accelerator.synchronise(self._worst(size))
        block = self._warm_up(size)
        start_s = self._meter.now_s()
        times_s: list[float] = []
        while not self._is_enough(times_s, start_s):
            times_s.append(self._block_s(size, block))
        end_s = self._meter.now_s()
        memory = accelerator.memory()
        self._meter.wait_until_seen(end_s, self.patience.seen_s)
        scope, energy = self._energy(start_s, end_s)
        count = len(times_s)
        return Trial(
            size=size,
            accumulation=self._accumulation(size),
            steps=block * count * self._steps_per_call,
            duration_s=end_s - start_s,
            stderr_s=float(np.std(times_s, ddof=1)) * math.sqrt(count),
            energy=energy,
            scope=scope,
            peak_bytes=memory.peak_bytes if memory else None,
        )

    def _block_s(self, size: int, steps: int) -> float:
        start_s = self._meter.now_s()
        told = (size,) if self._whole is None else (size, self._accumulation(size))
        result = None
        for _ in range(steps):
            result = self._step(*told)
        accelerator.synchronise(result)
        return self._meter.now_s() - start_s

    def _warm_up(self, size: int) -> int:
        """Run until the time of a step has settled; returns how many make a block."""
        steps, done, step_s = 1, 0, math.inf
        for _ in range(_MOST_WARM_UP):
            block_s = self._block_s(size, steps)
            before_s, step_s = step_s, max(block_s / steps, 1e-9)
            done += steps
            is_settled = abs(step_s - before_s) <= _SETTLED * step_s
            if is_settled and done >= _LEAST_WARM_UP and 2.0 * block_s >= self.patience.block_s:
                break
            if block_s < self.patience.block_s:
                steps = min(2 * steps, math.ceil(self.patience.block_s / step_s))
        return max(math.ceil(self.patience.block_s / step_s), 1)

    def _is_enough(self, times_s: list[float], start_s: float) -> bool:
        count, measured_s = len(times_s), self._meter.now_s() - start_s
        if count < _FEWEST_BLOCKS or measured_s < self.patience.least_s:
            return False
        if measured_s >= self.patience.most_s:
            return True
        stderr = float(np.std(times_s, ddof=1)) / math.sqrt(count)
        return stderr <= self.patience.error * float(np.mean(times_s))

    def _energy(self, start_s: float, end_s: float) -> tuple[Literal["gpu", "host"], Energy]:
        gpu = self._meter.energy(start_s, end_s, "gpu")
        if gpu.energy_j is not None:
            return "gpu", whole_window(gpu)
        return "host", whole_window(self._meter.energy(start_s, end_s, "host"))


def _short(reason: str) -> str:
    line = " ".join(reason.split())
    return line if len(line) <= _REASON else f"{line[:_REASON]}..."
