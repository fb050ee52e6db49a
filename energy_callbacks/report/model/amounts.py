"""Records of the amounts in a report: energy, emissions, cost, efficiency and throughput."""

from dataclasses import dataclass
from typing import Literal

from energy_callbacks.core.records import Energy, is_resolved

FigureOrigin = Literal["measured", "estimated", "mixed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure(Energy):
    """The energy of a time span, with its errors, method, coverage and origin.

    Attributes:
        energy_j: energy in the part of the span that has readings, J; ``None`` if not known.
        stderr_j: random standard error, J.
        edge_j: bound of the error from the edges of the span, J. The bounds of several spans and
            devices are added.
        systematic_j: upper bound of the error that all readings share, J.
        method: how the energy was computed, such as ``counter``; for a sum, the methods of its
            parts, joined with ``", "``.
        coverage: duration of the part of the span that has readings, divided by the duration of
            the span, 0 to 1.
        origin: ``measured`` by sensors, ``estimated`` by models, or ``mixed``; ``None`` if the
            energy is not known.
    """

    origin: FigureOrigin | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scopes:
    """Energy of the GPUs, of the hosts (CPU and RAM), and the total.

    The total of a host is the energy of the whole machine if a sensor measures it; otherwise it is
    the sum of GPUs and host.
    """

    gpu: Figure
    host: Figure
    total: Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Emissions:
    """Greenhouse gas emissions of the electricity, in kg of CO2 equivalent, including the PUE.

    Attributes:
        kg: best estimate of the emissions; ``None`` if ``kg_per_kwh`` is not known.
        low_kg: lower end of the interval of the emissions. The interval is known even if ``kg`` is
            not.
        high_kg: upper end of the interval of the emissions.
        place: name of the location, for display; ``None`` if not known.
        source: text that says where the carbon intensity and its interval come from.
        year: year of the carbon intensity; ``None`` if not known.
        kg_per_kwh: carbon intensity of the grid; ``None`` if the location or its carbon intensity
            is not known.
        low_kg_per_kwh: lower end of the interval of the carbon intensity.
        high_kg_per_kwh: upper end of the interval of the carbon intensity.
        pue: power usage effectiveness, by which the energy is multiplied.
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
    """Cost of the electricity, including the PUE.

    Attributes:
        price_per_kwh: price of a kilowatt-hour.
        amount: cost of the energy of the run, in the same currency.
        currency: ISO 4217 code of the currency; ``None`` if not known.
    """

    price_per_kwh: float
    amount: float
    currency: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """A forecast that was made early in an attempt.

    It predicts the energy and emissions of the run up to the end of the attempt, and the duration
    of the attempt. Errors are half-widths of 95 % intervals. They exclude the systematic error of
    the sensors, because that error affects the forecast and the final energy equally.

    Attributes:
        after: part of the training that the forecast is based on, such as ``the first epoch``.
        steps: optimizer steps that the attempt had made when the forecast was made.
        planned_steps: optimizer steps that the attempt was going to make in total.
        energy_j: energy of GPUs and hosts in this attempt and all earlier attempts, J.
        energy_error_j: error of ``energy_j``, J.
        duration_s: duration of the attempt, in seconds.
        duration_error_s: error of ``duration_s``, in seconds.
        emissions_kg: emissions, kg of CO2 equivalent; ``None`` if not known.
        emissions_low_kg: lower end of the interval of the emissions; ``None`` if not known.
        emissions_high_kg: upper end of the interval of the emissions; ``None`` if not known.
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
    """Energy per unit of work, in joules, with its 95 % interval.

    Attributes:
        value_j: best value.
        low_j: lower end of the interval, at least 0. The half-width of the interval is that of the
            energy (1.96 standard errors, ``edge_j`` and ``systematic_j`` in quadrature), plus the
            error that results from time without readings.
        high_j: upper end of the interval.
        stderr_j: random standard error; ``None`` if not known.
        edge_j: bound of the error from the edges of time spans; 0 in reports of earlier versions,
            in which it is part of ``stderr_j``.
        systematic_j: upper bound of the error that all readings share; ``None`` if not known.
        steps: number of optimizer steps in which the work was done; ``None`` if not known.
    """

    value_j: float
    low_j: float
    high_j: float
    stderr_j: float | None = None
    edge_j: float = 0.0
    systematic_j: float | None = None
    steps: int | None = None

    @property
    def is_resolved(self) -> bool:
        """Whether the error without its systematic part is at most half of ``value_j``.

        It counts as resolved if ``stderr_j`` is ``None``.
        """
        return self.stderr_j is None or is_resolved(self.value_j, self.stderr_j, self.edge_j)


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """Energy of the phase ``train`` per unit of work.

    Attributes:
        j_per_step: energy per executed optimizer step; ``None`` if not known.
        j_per_sample: energy per sample; ``None`` if not known, or if samples were not counted.
        j_per_token: energy per token; ``None`` if not known, or if tokens were not counted.
    """

    j_per_step: Ratio | None
    j_per_sample: Ratio | None
    j_per_token: Ratio | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiencies:
    """Energy per unit of work, of the GPUs alone and of GPUs and hosts together."""

    gpu: Efficiency
    total: Efficiency


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitEnergy:
    """Energy of devices while the training thread waited for data, in joules.

    Attributes:
        value_j: best value.
        low_j: lower end of the 95 % interval, at least 0. The half-width of the interval is
            computed as that of a ``Ratio``.
        high_j: upper end of the interval.
        stderr_j: random standard error.
        systematic_j: upper bound of the error that all readings share; in reports of earlier
            versions, this includes the error from the edges of waits.
        edge_j: bound of the error from the edges of waits.
    """

    value_j: float
    low_j: float
    high_j: float
    stderr_j: float
    systematic_j: float
    edge_j: float = 0.0

    @property
    def is_resolved(self) -> bool:
        """Whether the upper end of the interval is at most 1.5 times the value.

        If not, the waits were too short for the sensors. Unlike in ``Ratio``, the systematic error
        counts here, because it includes the error from the edges in reports of earlier versions.
        """
        return self.high_j <= 1.5 * self.value_j


@dataclass(frozen=True, slots=True, kw_only=True)
class DataWait:
    """Energy of the devices while the training waited for data, by scope; ``None`` if not known.

    This energy is part of the energy of the phase ``train``. Not all of it is wasted: a device may
    have executed work that was queued before the wait.
    """

    gpu: WaitEnergy | None
    host: WaitEnergy | None
    total: WaitEnergy | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """The amount of work, its speed, and the waits for data.

    Attributes:
        steps: number of optimizer steps, without ``replayed_steps``.
        replayed_steps: number of optimizer steps that were executed again after a resume.
        samples: number of samples of all ranks in all executed steps; ``None`` if not counted.
        tokens: number of tokens of all ranks in all executed steps; ``None`` if not counted.
        train_s: time in the phase ``train``, in seconds.
        samples_per_s: ``samples`` per second of ``train_s``; ``None`` if not known.
        tokens_per_s: ``tokens`` per second of ``train_s``; ``None`` if not known.
        data_wait_s: time for which the lead process of each attempt (usually rank 0) waited for
            data, in seconds; ``None`` if not known.
        data_wait_fraction: ``data_wait_s`` divided by ``train_s``; ``None`` if not known.
        data_wait: energy of the devices during waits for data; ``None`` if waits are not reported.
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
