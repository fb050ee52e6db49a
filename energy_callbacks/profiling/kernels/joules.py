"""Attributes the measured energy of a step to kernels by their share of the device's time.

The power of a single kernel cannot be measured: each kernel, and idle time too, is assumed to draw
the mean power of the device. Idle time is a row of its own, so that the rows add up to the measured
energy. In reality idle time draws less power, and dense kernels draw more.
"""

from dataclasses import dataclass

from energy_callbacks.profiling.kernels.classes import IDLE
from energy_callbacks.profiling.kernels.tally import CAUSES, KernelTally
from energy_callbacks.report.model.profile_kernels import KernelRow


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelEnergySplit:
    """Time and energy of a step by kernel.

    Attributes:
        rows: all kernels, longest first, and ``idle``; the shares add up to one.
        device_s: time of a step, times the number of devices.
        idle_s: idle time by cause; ``None`` if not known.
    """

    rows: tuple[KernelRow, ...]
    device_s: float
    idle_s: dict[str, float] | None

    @property
    def busy_share(self) -> float:
        """Share of the devices' time in which kernels run."""
        return sum(row.share for row in self.rows if row.class_name != IDLE)


def split(tally: KernelTally, step_s: float | None, j_per_step: float | None) -> KernelEnergySplit:
    """Splits time and energy of a step by kernel.

    Args:
        tally: sums of the windows, of at least one step.
        step_s: mean time of a step outside of windows; ``None`` takes that of the windows.
        j_per_step: energy of a step; ``None`` if not known.
    """
    steps = tally.steps
    busy_s, window_step_s = tally.busy_s / steps, tally.frame_s / steps
    device_s = max(window_step_s if step_s is None else step_s * tally.devices, busy_s)
    idle_s = device_s - busy_s

    def row(name: str, class_name: str, calls: float, time_s: float) -> KernelRow:
        share = time_s / device_s if device_s else 0.0
        return KernelRow(
            name=name,
            class_name=class_name,
            calls=calls,
            time_s=time_s,
            share=share,
            energy_j=None if j_per_step is None else share * j_per_step,
        )

    kernels = [
        row(name, tally.class_of[name], tally.calls[name] / steps, time_s / steps)
        for name, time_s in sorted(tally.time_s.items(), key=lambda pair: -pair[1])
    ]
    idle = row(IDLE, IDLE, 0.0, idle_s)
    causes_s = _causes(tally, idle_s)
    return KernelEnergySplit(rows=(*kernels, idle), device_s=device_s, idle_s=causes_s)


def _causes(tally: KernelTally, idle_s: float) -> dict[str, float] | None:
    """Returns the idle time of a step by cause, in the proportions of the windows."""
    windows_s = sum(tally.idle_s.values())
    if not tally.frame_s or not windows_s:
        return None
    return {cause: tally.idle_s.get(cause, 0.0) / windows_s * idle_s for cause in CAUSES}
