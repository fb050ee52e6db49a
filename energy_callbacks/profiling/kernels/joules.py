"""The measured energy of a step, given to kernels by their share of the device's time.

The power of a kernel cannot be measured: while one runs the device is taken to draw what it draws
on average, and while it is idle too. What is idle is a row of its own, so that the rows add up to
what was measured. In truth idle time draws less, and dense kernels draw more.
"""

from dataclasses import dataclass

from energy_callbacks.profiling.kernels.classes import IDLE
from energy_callbacks.profiling.kernels.tally import CAUSES, KernelTally
from energy_callbacks.report.model.profile_kernels import KernelRow


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelEnergySplit:
    """A step of the devices.

    Attributes:
        rows: all kernels, most time first, and ``idle``; their shares add up to one.
        device_s: time of a step, times the devices.
        idle_s: why it was idle, by cause; ``None`` if not known.
    """

    rows: tuple[KernelRow, ...]
    device_s: float
    idle_s: dict[str, float] | None

    @property
    def busy_share(self) -> float:
        """Of the devices' time."""
        return sum(row.share for row in self.rows if row.class_name != IDLE)


def split(found: KernelTally, step_s: float | None, j_per_step: float | None) -> KernelEnergySplit:
    """Time and energy of a step by kernel.

    Args:
        found: sums of the windows, of at least one step.
        step_s: mean time of a step outside of windows, if the profiler does not slow the host;
            ``None`` if there is none: then the windows' own.
        j_per_step: energy of a step.
    """
    busy_s = found.busy_s / found.steps
    seen_s = found.frame_s / found.steps
    device_s = max(seen_s if step_s is None else step_s * found.devices, busy_s)
    idle_s = device_s - busy_s
    rows = [
        (name, found.class_of[name], found.calls[name] / found.steps, time_s / found.steps)
        for name, time_s in sorted(found.time_s.items(), key=lambda pair: -pair[1])
    ]
    rows.append((IDLE, IDLE, 0.0, idle_s))
    return KernelEnergySplit(
        rows=tuple(_row(row, device_s, j_per_step) for row in rows),
        device_s=device_s,
        idle_s=_causes(found, idle_s),
    )


def _row(
    told: tuple[str, str, float, float], device_s: float, j_per_step: float | None
) -> KernelRow:
    name, class_name, calls, time_s = told
    share = time_s / device_s if device_s else 0.0
    return KernelRow(
        name=name,
        class_name=class_name,
        calls=calls,
        time_s=time_s,
        share=share,
        energy_j=None if j_per_step is None else share * j_per_step,
    )


def _causes(found: KernelTally, idle_s: float) -> dict[str, float] | None:
    """The idle time of a step by cause, in the proportions of the windows."""
    seen_s = sum(found.idle_s.values())
    if not found.frame_s or not seen_s:
        return None
    return {cause: found.idle_s.get(cause, 0.0) / seen_s * idle_s for cause in CAUSES}
