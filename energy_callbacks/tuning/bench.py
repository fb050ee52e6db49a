"""Runs a training step at one batch size until its time, energy and memory are known.

The function ``step`` is called in blocks. The device is synchronized only after each block::

    warm up      blocks of 1, 2, 4, ... calls, until the time per call is stable
    measure      equal blocks, until the mean time of a block is known well enough, or the time
                 limit is reached
    afterwards   the state of the training is restored, also after an error
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Literal

import numpy as np

from energy_callbacks.accounting.metrics.energy_sums import whole_window
from energy_callbacks.core.records import Energy
from energy_callbacks.meter import EnergyMeter
from energy_callbacks.tuning import accelerator
from energy_callbacks.tuning.out_of_memory import free_memory, is_out_of_memory, said
from energy_callbacks.tuning.search.trial import Trial

# The warm-up can end if the times per call of two successive blocks differ by at most this
# fraction.
_SETTLED: Final = 0.03
_LEAST_WARM_UP: Final = 4  # calls, in which libraries select kernels and compilers compile
_MOST_WARM_UP: Final = 12  # blocks
_FEWEST_BLOCKS: Final = 4
_REASON: Final = 200  # maximum length, characters


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Limits on the duration of a trial.

    Attributes:
        block_s: planned duration of a measured block, s; a block has at least one call of ``step``.
            After each block the device waits some tens of microseconds for the host, which is a
            small error in a long block.
        least_s: minimum duration of a measurement, s, because sensors may be slow.
        most_s: duration of a measurement after which no new block starts, s; but at least four
            blocks are measured.
        error: sufficient standard error of the mean time of a block, as a fraction of that mean.
        seen_s: maximum time to wait for the sensors' readings of a trial, s.
    """

    block_s: float = 0.25
    least_s: float = 2.0
    most_s: float = 10.0
    error: float = 0.01
    seen_s: float = 3.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not (isinstance(value, int | float) and value > 0 and math.isfinite(value)):
                raise ValueError(f"{name} must be a positive number, got {value!r}")
        if self.most_s < self.least_s:
            raise ValueError(
                f"most_s={self.most_s!r} is less than least_s={self.least_s!r}; make it larger"
            )


@dataclass(frozen=True, slots=True)
class Bench:
    """Runs trials of batch sizes.

    Attributes:
        step: ``step(size)`` runs ``steps_per_call`` training steps in batches of ``size`` samples.
            An out-of-memory error is the result of the trial; any other error propagates.
        meter: measures the energy; must be running.
        restore: restores the training after a trial.
        patience: limits on the duration of a trial.
        worst: ``worst(size)`` runs one training step with the ``size`` samples that need the most
            memory; each trial begins with it. ``None`` for no such step.
        step_samples: samples of an optimizer step on this rank; ``None`` if not fixed. If fixed,
            ``step`` gets the number of micro-batches of an optimizer step as second argument.
        steps_per_call: number of training steps, each with one optimizer step, in a call of
            ``step``.
    """

    step: Callable[..., Any]
    meter: EnergyMeter
    restore: Callable[[], None] = lambda: None
    patience: Patience = field(default_factory=Patience)
    worst: Callable[[int], Any] | None = None
    step_samples: int | None = None
    steps_per_call: int = 1

    def __post_init__(self) -> None:
        count = self.steps_per_call
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ValueError(
                f"steps_per_call must be a whole number of at least 1, got {count!r}; give the "
                "number of training steps in a call of step"
            )

    def run(self, size: int) -> Trial:
        """Run one trial of a batch size, and restore the training.

        Raises:
            Exception: any error of ``step`` or ``worst`` other than out of memory.
        """
        start_s = self.meter.now_s()
        accelerator.forget_compiled()
        accelerator.reset_peak()
        reason = None
        accumulation = 1 if self.step_samples is None else self.step_samples // size
        trial = Trial(size=size, accumulation=accumulation)
        try:
            trial = self._measured(trial)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            reason = f"{type(error).__name__}: {said(error)}"
            free_memory(error)
        finally:
            self.restore()
        if reason is not None:
            trial = replace(trial, status="out_of_memory", reason=_short(reason))
        return replace(trial, cost_s=self.meter.now_s() - start_s)

    def _measured(self, trial: Trial) -> Trial:
        if self.worst is not None:
            accelerator.synchronise(self.worst(trial.size))
        block = self._warm_up(trial)
        start_s = self.meter.now_s()
        times_s: list[float] = []
        while not self._is_enough(times_s, start_s):
            times_s.append(self._block_s(trial, block))
        end_s = self.meter.now_s()
        memory = accelerator.memory()
        self.meter._wait_until_seen(end_s, self.patience.seen_s)
        scope, energy = self._energy(start_s, end_s)
        stderr_s = float(np.std(times_s, ddof=1)) * math.sqrt(len(times_s))
        return replace(
            trial,
            steps=block * len(times_s) * self.steps_per_call,
            duration_s=end_s - start_s,
            stderr_s=stderr_s,
            energy=_with_time_error(energy, stderr_s / (end_s - start_s)),
            scope=scope,
            peak_bytes=memory.peak_bytes if memory else None,
        )

    def _block_s(self, trial: Trial, steps: int) -> float:
        start_s = self.meter.now_s()
        is_fixed = self.step_samples is not None
        arguments = (trial.size, trial.accumulation) if is_fixed else (trial.size,)
        result = None
        for _ in range(steps):
            result = self.step(*arguments)
        accelerator.synchronise(result)
        return self.meter.now_s() - start_s

    def _warm_up(self, trial: Trial) -> int:
        """Call ``step`` until its duration is stable; return how often a measured block calls it.

        After ``_MOST_WARM_UP`` blocks the warm-up ends in any case.
        """
        steps, done, step_s = 1, 0, math.inf
        for _ in range(_MOST_WARM_UP):
            block_s = self._block_s(trial, steps)
            before_s, step_s = step_s, max(block_s / steps, 1e-9)
            done += steps
            is_settled = abs(step_s - before_s) <= _SETTLED * step_s
            if is_settled and done >= _LEAST_WARM_UP and 2.0 * block_s >= self.patience.block_s:
                break
            if block_s < self.patience.block_s:
                steps = min(2 * steps, math.ceil(self.patience.block_s / step_s))
        return max(math.ceil(self.patience.block_s / step_s), 1)

    def _is_enough(self, times_s: list[float], start_s: float) -> bool:
        count, measured_s = len(times_s), self.meter.now_s() - start_s
        if count < _FEWEST_BLOCKS or measured_s < self.patience.least_s:
            return False
        if measured_s >= self.patience.most_s:
            return True
        stderr = float(np.std(times_s, ddof=1)) / math.sqrt(count)
        return stderr <= self.patience.error * float(np.mean(times_s))

    def _energy(self, start_s: float, end_s: float) -> tuple[Literal["gpu", "host"], Energy]:
        gpu = self.meter.energy(start_s, end_s, "gpu")
        if gpu.energy_j is not None:
            return "gpu", whole_window(gpu)
        return "host", whole_window(self.meter.energy(start_s, end_s, "host"))


def _with_time_error(energy: Energy, error: float) -> Energy:
    """Add the relative standard error of the time to the random error of the energy.

    Steps that vary in time vary in energy too. A sensor knows the energy of the measured steps
    more precisely than these steps represent the batch size.
    """
    return replace(energy, stderr_j=math.hypot(energy.stderr_j, error * (energy.energy_j or 0.0)))


def _short(reason: str) -> str:
    line = " ".join(reason.split())
    return line if len(line) <= _REASON else f"{line[:_REASON]}..."
