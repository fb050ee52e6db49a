"""Sleeps after each step, so that the GPU works only a share of the time (duty cycling)."""

from typing import TYPE_CHECKING

from energy_callbacks.sensing.frameworks.loaded_frameworks import awake_torch

if TYPE_CHECKING:
    from energy_callbacks.accounting.attempt import ActiveAttempt
    from energy_callbacks.sensing.clock import Clock


class Pacer:
    """A profiler (``accounting/profilers.py``) that sleeps on the training thread.

    After a step of ``t`` seconds, until the device had finished, it sleeps ``t (1 / duty - 1)``.
    All ranks have the same ``duty``, so none of them waits for the others for long.

    Args:
        clock: tells the time, and sleeps.

    Attributes:
        duty: share of the time at work, above 0 and at most 1; 1 does not sleep.
    """

    def __init__(self, clock: "Clock") -> None:
        self.duty = 1.0
        self._clock = clock
        self._from_s: float | None = None

    def start(self, meter: "ActiveAttempt") -> None:
        """See ``Profiler``."""

    def mark(self, name: str, t_s: float) -> None:  # noqa: ARG002 - as ``Profiler``
        """Leave out the step during which the phase changes, for example to validation."""
        if name.startswith("phase:"):
            self._from_s = None

    def step(self, t_s: float) -> None:  # noqa: ARG002 - the device may finish later
        """Wait for the device, and sleep."""
        if self.duty >= 1.0:
            self._from_s = None
            return
        if (torch := awake_torch()) is not None:
            torch.cuda.synchronize()
        now_s = self._clock.monotonic_s()
        if self._from_s is not None:
            self._clock.sleep((now_s - self._from_s) * (1.0 / self.duty - 1.0))
        self._from_s = self._clock.monotonic_s()

    def stop(self) -> None:
        """See ``Profiler``."""
        self.duty = 1.0
