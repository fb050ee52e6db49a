"""Records of the quantities of a run: energy, emissions, cost, efficiency and throughput."""

from dataclasses import dataclass
from typing import Literal

from energy_callbacks.core.records import Energy, is_resolved

FigureOrigin = Literal["measured", "estimated", "mixed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure(Energy):
    """An energy with all that is known of its quality.

    Attributes:
        energy_j: joules in the share of the time that was seen; ``None`` if unknown.
        stderr_j: random standard error.
        systematic_j: bound of the error that all readings share.
        method: how it was found; several are joined with ``", "``.
        coverage: share of the time that was really seen, 0 to 1.
        origin: sensors, models or both; ``None`` if the energy is unknown.
    """

    origin: FigureOrigin | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scopes:
    """The same question for the GPUs, for CPU and RAM, and for both together."""

    gpu: Figure
    host: Figure
    total: Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Emissions:
    """Greenhouse gas of the electricity, in kg of CO2 equivalents.

    Attributes:
        kg: best value; ``None`` if the place is not known, then only the interval stands.
        place: for people; ``None`` if not known.
        source: where the carbon intensity and its interval come from.
        year: of the figure, ``None`` if not known.
        kg_per_kwh: carbon intensity of the grid; ``None`` if the place is not known.
        pue: power usage effectiveness that the energy was multiplied with.
    """

    kg: float | None
    low_kg: float
    high_kg: float
    place: str | None
    source: str
    year: int | None
    kg_per_kwh: float | None
    low_kg_per_kwh: float
    high_kg_per_kwh: float
    pue: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Money for the electricity, in the currency of ``price_per_kwh``, PUE included."""

    price_per_kwh: float
    amount: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What the whole run was said to use when it had just begun; errors are of 95 % intervals.

    Attributes:
        after: what had been seen of the training by then, in words.
        steps: optimizer steps that the newest attempt had made by then.
        planned_steps: that it was to make.
        energy_j: of GPUs and host, over all attempts.
        energy_error_j: without the sensors' systematic error, which the outcome has too.
        duration_s: of the newest attempt.
        emissions_kg: ``None`` if the place is not known, then only the interval stands.
    """

    after: str
    steps: int
    planned_steps: int
    energy_j: float
    energy_error_j: float
    duration_s: float
    duration_error_s: float
    emissions_kg: float | None
    emissions_low_kg: float | None
    emissions_high_kg: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """Energy for a unit of work, with its 95 % interval, in joules.

    Attributes:
        low_j: lower end of the interval: 1.96 standard errors, the systematic bound, and what
            was not seen.
        high_j: upper end.
        stderr_j: the random standard error alone.
        systematic_j: the bound alone of the error that all readings share.
        steps: optimizer steps that it is a mean over.
    """

    value_j: float
    low_j: float
    high_j: float
    stderr_j: float | None = None
    systematic_j: float | None = None
    steps: int | None = None

    @property
    def is_resolved(self) -> bool:
        """Whether training was long enough for its sensors; see ``records.Energy``."""
        return self.stderr_j is None or is_resolved(self.value_j, self.stderr_j)


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """Energy of the training phase for each unit of work; ``None`` if it was not counted."""

    j_per_step: Ratio | None
    j_per_sample: Ratio | None
    j_per_token: Ratio | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiencies:
    """Efficiency by scope."""

    gpu: Efficiency
    total: Efficiency


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitEnergy:
    """Energy that devices took while the training thread waited for data, in joules.

    Attributes:
        low_j: lower end of the 95 % interval: 1.96 standard errors, the systematic bound, and
            what was not seen.
        high_j: upper end.
        stderr_j: the random standard error alone.
        systematic_j: the bound alone of the error that all readings, or all waits, share.
    """

    value_j: float
    low_j: float
    high_j: float
    stderr_j: float
    systematic_j: float

    @property
    def is_resolved(self) -> bool:
        """Whether the upper end is at most half as much again: else waits were too short.

        Unlike elsewhere the systematic bound counts here: it is what short waits leave open.
        """
        return self.high_j <= 1.5 * self.value_j


@dataclass(frozen=True, slots=True, kw_only=True)
class DataWait:
    """Energy of waiting for data by scope; ``None`` if not known.

    It is part of the phase ``train``. Not all of it is lost: a device may have worked off what
    was queued before.
    """

    gpu: WaitEnergy | None
    host: WaitEnergy | None
    total: WaitEnergy | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """How much work was done, and how fast.

    Attributes:
        steps: optimizer steps of the run, each counted once.
        replayed_steps: steps that were executed again after a resume.
        samples: samples of all ranks, each executed step counted.
        train_s: time in the training phase.
        data_wait_s: time in which the training waited for its next batch.
        data_wait_fraction: share of ``train_s``.
        data_wait: what the devices used in that time; ``None`` if no framework reports it.
    """

    steps: int
    replayed_steps: int
    samples: int | None
    tokens: int | None
    train_s: float
    samples_per_s: float | None
    tokens_per_s: float | None
    data_wait_s: float | None
    data_wait_fraction: float | None
    data_wait: DataWait | None = None
