"""The result of one trial of a batch size."""

from dataclasses import dataclass
from typing import Final, Literal

from energy_callbacks.core.records import Energy

Status = Literal["ok", "out_of_memory"]
_UNKNOWN: Final = Energy(energy_j=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A batch size that was run, or that did not fit.

    Attributes:
        size: samples that go through the model at once, on each rank.
        accumulation: this many times before the optimizer steps.
        ranks: processes that step together.
        status: whether it ran.
        reason: what the device said if it did not.
        steps: how many of the optimizer were measured, after those of the warm-up.
        duration_s: how long these took.
        stderr_s: standard error of it at random.
        energy: of the GPUs meanwhile, or of the host if there is none; what sensors have not
            seen of that time is taken to be like the rest.
        scope: whose energy it is, ``gpu`` or ``host``.
        peak_bytes: the most memory of the device that was in use, on the card with the most.
        cost_s: time of the whole trial, with what comes before and after.
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
        """How many went through all measured steps, on all ranks."""
        return self.size * self.accumulation * self.ranks * self.steps

    @property
    def samples_per_s(self) -> float | None:
        """Throughput of all ranks; ``None`` if it did not run."""
        return self.samples / self.duration_s if self.duration_s else None

    @property
    def power_w(self) -> float | None:
        """Mean power of ``scope``."""
        if self.energy.energy_j is None or not self.duration_s:
            return None
        return self.energy.energy_j / self.duration_s

    @property
    def j_per_sample(self) -> float | None:
        """Energy a sample of ``scope``."""
        if self.energy.energy_j is None or not self.steps:
            return None
        return self.energy.energy_j / self.samples

    @property
    def time_error(self) -> float:
        """Standard error of the throughput, as a share of it."""
        return self.stderr_s / self.duration_s if self.duration_s else 0.0

    @property
    def energy_error(self) -> float:
        """Standard error of joules a sample at random, as a share of them."""
        return self.energy.stderr_j / self.energy.energy_j if self.energy.energy_j else 0.0
