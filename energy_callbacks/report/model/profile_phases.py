"""Records of the energy of the phases of a training step, and their table."""

from dataclasses import dataclass
from typing import Literal

from energy_callbacks.core import formatting

HEAD = ("phase of the step", "time/step", "power", "J/step (95 %)", "share")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPhase:
    """One phase of a training step; times and energies are means over the profiled steps.

    Attributes:
        name: name of the phase, such as ``forward``.
        time_s: time per step, in seconds.
        energy_j: energy per step that is attributed to the phase; ``None`` if the energy could not
            be split.
        error_j: half-width of the 95 % interval of ``energy_j``; ``None`` if the energy could not
            be split.
    """

    name: str
    time_s: float
    energy_j: float | None
    error_j: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPhases:
    """Energy of one device, split into the phases of a training step.

    Attributes:
        device: key of the device; ``no sensor`` if the device that trains has no sensor.
        timed_by: ``device`` if events of the device give the times of the phases; ``host`` if the
            host's clock gives them.
        steps: number of profiled steps.
        step_s: mean duration of a step, in seconds.
        measured_j: measured energy per step; ``None`` if not known.
        split_j: sum of ``energy_j`` over the phases. It may differ from ``measured_j``, because the
            energies of the phases are fitted to power readings. ``None`` if the energy could not
            be split.
        lag_s: fitted delay of the sensor, in seconds; ``None`` if the energy could not be split.
        response_s: fitted time constant of the sensor, in seconds; ``None`` if the energy could not
            be split.
        refusal: why the energy could not be split; ``None`` if the energy was split.
        help: what would make a split possible; ``None`` if the energy was split.
        phases: phases in the order in which a step executes them.
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
        """Sentence with the profiled steps, and the result of the split or why there is none."""
        timed = "events of the device" if self.timed_by == "device" else "the clock of the host"
        step = formatting.short_time(self.step_s)
        head = f"{self.steps} steps of {step} on {self.device}, timed by {timed}."
        if self.refusal is not None:
            return f"{head} The energy is not split: {self.refusal}; {self.help}."
        if self.split_j is None or not self.measured_j:
            return f"{head} The energy is attributed to the phases."
        percent = 100.0 * self.split_j / self.measured_j
        return (
            f"{head} The energy is attributed to the phases, whose sum is {percent:.1f} % of the "
            "measured energy."
        )


def rows(profile: StepPhases) -> list[tuple[str, ...]]:
    """Return the rows of a table of phases, with the columns ``HEAD``."""
    return [_row(profile, phase) for phase in profile.phases]


def _row(profile: StepPhases, phase: StepPhase) -> tuple[str, ...]:
    time = formatting.short_time(phase.time_s)
    if phase.energy_j is None or phase.error_j is None or profile.split_j is None:
        return (phase.name, time, *[formatting.UNKNOWN] * 3)
    power = formatting.power(phase.energy_j / phase.time_s if phase.time_s > 0.0 else None)
    joules = " ± ".join(formatting.with_error(phase.energy_j, phase.error_j))
    share = formatting.UNKNOWN
    if profile.split_j != 0.0:
        share = f"{100.0 * phase.energy_j / profile.split_j:.0f} %"
    return (phase.name, time, power, joules, share)
