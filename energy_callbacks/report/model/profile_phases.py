"""Where in the step the energy went, as a part of the report."""

from dataclasses import dataclass
from typing import Literal

from energy_callbacks.core import formatting

HEAD = ("phase of the step", "time/step", "power", "J/step (95 %)", "share")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPhase:
    """One phase of the step, means over all steps that were followed.

    Attributes:
        name: such as ``forward``.
        time_s: a step.
        energy_j: a step, attributed; ``None`` if the split was refused.
        error_j: half-width of its 95 % interval.
    """

    name: str
    time_s: float
    energy_j: float | None
    error_j: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPhases:
    """Energy of one device, split over the phases of the step.

    Attributes:
        device: key of the device.
        timed_by: what dated the phases: events of the device, or the clock of the host.
        steps: that were followed.
        step_s: mean time of one.
        measured_j: a step, by the sensor.
        split_j: sum over the phases as they were fitted, nothing scaled; ``None`` if refused.
        lag_s: fitted: the sensor is so late.
        response_s: fitted: time constant of the sensor.
        refusal: why there is no split; ``None`` if there is one.
        help: what would make one possible.
        phases: in the order in which they come in a step.
    """

    device: str
    timed_by: Literal["device", "host"]
    steps: int
    step_s: float
    measured_j: float | None
    split_j: float | None
    lag_s: float | None
    response_s: float | None
    refusal: str | None
    help: str | None
    phases: tuple[StepPhase, ...]

    @property
    def sentence(self) -> str:
        """What was done, or why it was not."""
        timed = "by events of the device" if self.timed_by == "device" else "by the host's clock"
        head = (
            f"{self.steps} steps of {formatting.short_time(self.step_s)} on {self.device}, {timed}"
        )
        if self.refusal is not None:
            return f"{head}: not split, {self.refusal}; {self.help}"
        if self.split_j is None or not self.measured_j:
            return f"{head}; attributed"
        percent = 100.0 * self.split_j / self.measured_j
        return f"{head}; attributed, the phases sum to {percent:.1f} % of what was measured"


def rows(found: StepPhases) -> list[tuple[str, ...]]:
    """A row for each phase, as ``HEAD`` names them."""
    return [_row(found, phase) for phase in found.phases]


def _row(found: StepPhases, phase: StepPhase) -> tuple[str, ...]:
    time = formatting.short_time(phase.time_s)
    if phase.energy_j is None or phase.error_j is None or found.split_j is None:
        return (phase.name, time, *[formatting.UNKNOWN] * 3)
    power = (
        formatting.power(phase.energy_j / phase.time_s)
        if phase.time_s > 0.0
        else formatting.UNKNOWN
    )
    joules = " ± ".join(formatting.with_error(phase.energy_j, phase.error_j))
    return (phase.name, time, power, joules, f"{100.0 * phase.energy_j / found.split_j:.0f} %")
