"""Computes energy, emissions, cost and time of many jobs from energy and time of one job.

In the same way, the saving of many jobs is computed from the saving of one job. The formulas are::

    energy of a day  = jobs per day x energy of a job x PUE x (1 + scheduler overhead)
    energy of a year = 365 x energy of a day

The PUE (power usage effectiveness) is the energy of the data centre divided by the energy of its
machines. The error of the energy is multiplied by the same factors. The systematic error of sensors
and models is the same in every job, so it does not average out. The random error does not average
out either, because it depends on the number of measured runs, not on the number of projected jobs.
"""

import itertools
import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from energy_callbacks.accounting.metrics.carbon import Intensity
from energy_callbacks.core.settings.checks import check_currency
from energy_callbacks.core.units import JOULES_PER_WATT_HOUR, hours

DAYS_A_YEAR: Final = 365


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """A number and the ends of its 95 % interval; each is ``None`` if it is not known."""

    value: float | None
    low: float | None
    high: float | None

    def times(self, factor: "Amount | float") -> "Amount":
        """Return the product, with the interval of all possible products.

        >>> Amount(value=2.0, low=-1.0, high=3.0).times(Amount(value=None, low=0.1, high=0.5))
        Amount(value=None, low=-0.5, high=1.5)
        """
        other = factor if isinstance(factor, Amount) else exact(factor)
        return self._combined(operator.mul, other)

    def minus(self, other: "Amount") -> "Amount":
        """Return ``self - other``, with the interval of all possible differences.

        >>> Amount(value=3.0, low=2.0, high=4.0).minus(Amount(value=1.0, low=0.5, high=1.5))
        Amount(value=2.0, low=0.5, high=3.5)
        """
        return self._combined(operator.sub, other)

    def _combined(self, operation: Callable[[float, float], float], other: "Amount") -> "Amount":
        value = None
        if self.value is not None and other.value is not None:
            value = operation(self.value, other.value)
        pairs = itertools.product((self.low, self.high), (other.low, other.high))
        ends = [operation(a, b) for a, b in pairs if a is not None and b is not None]
        if len(ends) < 4:
            return Amount(value=value, low=None, high=None)
        return Amount(value=value, low=min(ends), high=max(ends))


def exact(value: float) -> Amount:
    """Return an ``Amount`` without error: both ends of its interval are equal to the value."""
    return Amount(value=value, low=value, high=value)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobUse:
    """Energy and time that one job uses, or that a change saves in one job.

    Attributes:
        energy_j: energy of GPUs and host in joules, without the overhead of the data centre.
        wall_s: duration of the job in seconds; ``None`` if not known.
        gpu_s: duration times the number of GPUs, in seconds; ``None`` if not known.
    """

    energy_j: Amount
    wall_s: Amount | None = None
    gpu_s: Amount | None = None

    def minus(self, other: "JobUse") -> "JobUse":
        """Return the saving per job if the job ``other`` replaces this job."""
        return JobUse(
            energy_j=self.energy_j.minus(other.energy_j),
            wall_s=self.wall_s and other.wall_s and self.wall_s.minus(other.wall_s),
            gpu_s=self.gpu_s and other.gpu_s and self.gpu_s.minus(other.gpu_s),
        )

    def saving(self, energy_ratio: Amount, time_ratio: Amount | None = None) -> "JobUse":
        """Return the saving of a change that multiplies energy and time by the given ratios.

        The times of the result are ``None`` if ``time_ratio`` is ``None``.

        >>> job = JobUse(energy_j=exact(100.0))
        >>> job.saving(Amount(value=0.75, low=0.5, high=1.5)).energy_j
        Amount(value=25.0, low=-50.0, high=50.0)
        """
        saved_time = None if time_ratio is None else exact(1.0).minus(time_ratio)
        return JobUse(
            energy_j=self.energy_j.times(exact(1.0).minus(energy_ratio)),
            wall_s=saved_time and self.wall_s and self.wall_s.times(saved_time),
            gpu_s=saved_time and self.gpu_s and self.gpu_s.times(saved_time),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The number of jobs a day, and the properties of the data centre where they run.

    Attributes:
        jobs_per_day: number of jobs a day.
        intensity: carbon intensity of the grid.
        pue: power usage effectiveness: energy of the data centre divided by energy of its machines.
        scheduler_overhead: energy of nodes while they start, wait and shut down, divided by the
            energy of the jobs.
        price_per_kwh: price of electricity; ``None`` if not known.
        currency: ISO 4217 code of the currency of the price; ``None`` if not known.

    Raises:
        ValueError: if a number is out of range, or if there is a currency without a price.
    """

    jobs_per_day: float
    intensity: Intensity
    pue: float = 1.0
    scheduler_overhead: float = 0.0
    price_per_kwh: float | None = None
    currency: str | None = None

    def __post_init__(self) -> None:
        if not 0.0 < self.jobs_per_day < 1e15:
            raise ValueError(f"jobs per day must be positive, got {self.jobs_per_day}; such as 1e6")
        if not 0.0 <= self.scheduler_overhead < 100.0:
            raise ValueError(
                "scheduler overhead must be a share of the jobs' energy, 0 or more, got "
                f"{self.scheduler_overhead}; 0.05 is 5 %"
            )
        if not 1.0 <= self.pue <= 10.0:
            raise ValueError(
                f"pue must be between 1 and 10, got {self.pue}; 1 is the machine "
                "without the building"
            )
        if self.price_per_kwh is not None and not 0.0 <= self.price_per_kwh < 1e9:
            raise ValueError(f"price per kWh must not be negative, got {self.price_per_kwh}")
        check_currency(self.currency, self.price_per_kwh)

    @property
    def kg_per_kwh(self) -> Amount:
        """Emissions per kWh, in kg of CO2 equivalents; its ``value`` is ``None`` if not known."""
        grid = self.intensity
        return Amount(value=grid.kg_per_kwh, low=grid.low_kg_per_kwh, high=grid.high_kg_per_kwh)


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """Energy, emissions, cost and time that a number of jobs use or save.

    Attributes:
        jobs: number of jobs.
        energy_kwh: energy, including the overheads of data centre and scheduler.
        emissions_kg: CO2 equivalents; only an interval if the carbon intensity is not known.
        money: cost of electricity in the currency of the price; ``None`` if no price is given.
        wall_h: sum of the durations of all jobs, in hours; ``None`` if not known.
        gpu_h: GPU-hours of all jobs; ``None`` if not known.
    """

    jobs: float
    energy_kwh: Amount
    emissions_kg: Amount
    money: Amount | None
    wall_h: Amount | None
    gpu_h: Amount | None


def project(job: JobUse, fleet: Fleet, *, days: float = 1.0) -> Projection:
    """Return what all jobs in a number of days use, or save if ``job`` is the saving per job.

    In this example, one million jobs a day use 15 Wh each, a change saves 5 % of this energy, and
    the grid emits 0.5 kg of CO2 equivalents per kWh::

        project(JobUse(energy_j=exact(0.05 * 15 * 3600)), Fleet(jobs_per_day=1e6, ...))
        # 750 kWh, 375 kg
    """
    jobs = fleet.jobs_per_day * days
    share = fleet.pue * (1.0 + fleet.scheduler_overhead)
    energy_kwh = job.energy_j.times(jobs * share / (1e3 * JOULES_PER_WATT_HOUR))
    return Projection(
        jobs=jobs,
        energy_kwh=energy_kwh,
        emissions_kg=energy_kwh.times(fleet.kg_per_kwh),
        money=None if fleet.price_per_kwh is None else energy_kwh.times(fleet.price_per_kwh),
        wall_h=job.wall_s and job.wall_s.times(hours(jobs)),
        gpu_h=job.gpu_s and job.gpu_s.times(hours(jobs)),
    )


def one_job(job: JobUse, fleet: Fleet) -> Projection:
    """Return what one job uses or saves, including the overheads of data centre and scheduler."""
    return project(job, replace(fleet, jobs_per_day=1.0))
