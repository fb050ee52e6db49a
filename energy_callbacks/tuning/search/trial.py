"""The result of one trial of a batch size."""

from dataclasses import dataclass
from typing import Final, Literal

from energy_callbacks.core.records import NORMAL_95, Energy

Status = Literal["ok", "out_of_memory"]
_UNKNOWN: Final = Energy(energy_j=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The result of a trial: measurements at one batch size, or an out-of-memory error.

    Attributes:
        size: number of samples in a micro-batch on each rank.
        accumulation: number of micro-batches per optimizer step.
        ranks: number of processes that train together.
        status: ``ok`` if the steps ran, ``out_of_memory`` if the size did not fit.
        reason: message of the out-of-memory error; empty if there was none.
        steps: number of measured optimizer steps, without the steps of the warm-up.
        duration_s: duration of the measured steps, in seconds.
        stderr_s: random standard error of ``duration_s``, in seconds. It is that of the blocks of
            the trial; in the result of a search, it includes the variance between trials.
        energy: energy of the GPUs during the measured steps; if it is unknown, energy of the host.
            For time without readings, the mean power of the time with readings is assumed. Its
            random error includes that of the sensor and the same variances as ``stderr_s``.
        scope: scope of ``energy``, ``gpu`` or ``host``.
        peak_bytes: peak memory of the device that came closest to its limit; for several ranks, see
            ``together`` in ``tuning/ranks.py``. ``None`` if unknown.
        cost_s: duration of the whole trial, including the warm-up and the restoring of the training
            state, in seconds.
    """

    size: int
    accumulation: int = 1
    ranks: int = 1
    status: Status = "ok"
    reason: str = ""
    steps: int = 0
    duration_s: float = 0.0
    stderr_s: float = 0.0
    energy: Energy = _UNKNOWN
    scope: Literal["gpu", "host"] = "gpu"
    peak_bytes: int | None = None
    cost_s: float = 0.0

    @property
    def samples(self) -> int:
        """Number of samples of all measured steps on all ranks."""
        return self.size * self.accumulation * self.ranks * self.steps

    @property
    def samples_per_s(self) -> float | None:
        """Throughput of all ranks together, samples/s; ``None`` if the size did not fit."""
        return self.samples / self.duration_s if self.duration_s else None

    @property
    def power_w(self) -> float | None:
        """Mean power of all devices in ``scope`` together, W; ``None`` if unknown."""
        if self.energy.energy_j is None or not self.duration_s:
            return None
        return self.energy.energy_j / self.duration_s

    @property
    def j_per_sample(self) -> float | None:
        """Energy of all devices in ``scope`` per sample, J; ``None`` if unknown."""
        if self.energy.energy_j is None or not self.steps:
            return None
        return self.energy.energy_j / self.samples

    @property
    def time_error(self) -> float:
        """Relative random standard error of the throughput; 0 if the size did not fit."""
        return self.stderr_s / self.duration_s if self.duration_s else 0.0

    @property
    def energy_error(self) -> float:
        """Relative standard error of the energy per sample; 0 if the energy is unknown.

        It includes the error from the edges of the trial, but not the systematic error.
        """
        if not self.energy.energy_j:
            return 0.0
        return self.energy.resolution_j / NORMAL_95 / self.energy.energy_j
