"""Defines the compared quantities; computes their values in a run, and errors of sensors."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from energy_callbacks.accounting.metrics.energy_sums import total
from energy_callbacks.core import formatting
from energy_callbacks.importers.journal_lines import UNKNOWN_HOST
from energy_callbacks.report.model import figure_format
from energy_callbacks.report.model.amounts import Figure, Ratio
from energy_callbacks.report.model.runs import DeviceUse, devices_in_sum
from energy_callbacks.report.model.schema import EnergyReport

Scope = Literal["gpu", "total"]
ENERGY_TO_TARGET, TIME_TO_TARGET = "energy_to_target_j", "time_to_target_s"
# Energies per unit of work, in order of preference. Only the first that is known for both groups is
# compared.
_OF_WORK: Final = ("j_per_sample", "j_per_token", "j_per_step")


@dataclass(frozen=True, slots=True)
class Quantity:
    """A quantity by which runs are compared.

    Attributes:
        name: name in code and JSON, which contains the unit.
        title: name that is shown to users.
        say: function that formats a value as text.
        is_energy: whether the value is an energy or a power. Systematic errors that do not cancel
            widen the interval of such a quantity.
        is_whole: whether the value is a total of the run, which can be compared only between runs
            that did the same work.
    """

    name: str
    title: str
    say: Callable[[float], str]
    is_energy: bool = True
    is_whole: bool = False

    @property
    def in_sentence(self) -> str:
        """The title as it is written inside a sentence; ``GPU`` stays in capitals."""
        first, _, rest = self.title.partition(" ")
        return self.title if first.isupper() else f"{first.lower()} {rest}"

    @property
    def scope(self) -> Scope:
        """Scope of the sensors that contribute to the value; ``total`` includes all devices."""
        return "gpu" if self.name.startswith("gpu_") else "total"


def _joules(value: float) -> str:
    return figure_format.ratio(Ratio(value_j=value, low_j=value, high_j=value))


# All quantities, in the order in which tables of a comparison show them.
QUANTITIES: tuple[Quantity, ...] = (
    Quantity(ENERGY_TO_TARGET, "Energy to the target", formatting.energy),
    Quantity("j_per_sample", "Energy per sample", _joules),
    Quantity("j_per_token", "Energy per token", _joules),
    Quantity("j_per_step", "Energy per step", _joules),
    Quantity("energy_j", "Energy of the run", formatting.energy, is_whole=True),
    Quantity("gpu_energy_j", "GPU energy of the run", formatting.energy, is_whole=True),
    Quantity(TIME_TO_TARGET, "Time to the target", formatting.duration, is_energy=False),
    Quantity("duration_s", "Time of the run", formatting.duration, is_energy=False, is_whole=True),
    Quantity("samples_per_s", "Samples per second", formatting.grouped, is_energy=False),
    Quantity("power_w", "Mean power", formatting.power),
    Quantity("peak_memory_bytes", "Peak GPU memory", formatting.size, is_energy=False),
    Quantity("mean_memory_bytes", "Mean GPU memory", formatting.size, is_energy=False),
    Quantity("host_memory_bytes", "Peak host memory", formatting.size, is_energy=False),
    Quantity("host_mean_memory_bytes", "Mean host memory", formatting.size, is_energy=False),
)
ANSWERS: Final = (ENERGY_TO_TARGET, *_OF_WORK, "energy_j", "gpu_energy_j")
"""Candidates for the main quantity, in order of preference.

Power is not among them: a run with less power may take longer and use more energy.
"""
HOST_MEMORY: Final = ("host_memory_bytes", "host_mean_memory_bytes")
BY_NAME: Mapping[str, Quantity] = {one.name: one for one in QUANTITIES}


def compared(old: Mapping[str, float], new: Mapping[str, float]) -> Iterator[Quantity]:
    """Yield the quantities that are known for both groups.

    Of the quantities in ``_OF_WORK``, only the first that is known for both groups is yielded.

    Args:
        old: means of the first group, by name of the quantity.
        new: means of the other group, by name of the quantity.
    """
    shared = [one for one in QUANTITIES if one.name in old and one.name in new]
    of_work = [one for one in shared if one.name in _OF_WORK]
    # Only the first is kept. The others say less: for example, steps may differ in size.
    return (one for one in shared if one not in of_work[1:])


def values(report: EnergyReport) -> dict[str, float]:
    """Return the known positive values of a run, by name of the quantity.

    Energies that are not resolved, and quantities that need a target, are left out.
    """
    return {name: value for name, value in _values(report) if value is not None and value > 0.0}


def _values(report: EnergyReport) -> Iterator[tuple[str, float | None]]:
    for name in _OF_WORK:
        ratio: Ratio | None = getattr(report.efficiency.total, name)
        if ratio is not None and ratio.is_resolved:
            yield name, ratio.value_j
    whole = report.energy.total
    yield "energy_j", whole.resolved_j
    yield "gpu_energy_j", report.energy.gpu.resolved_j
    yield "duration_s", report.run.duration_s
    yield "samples_per_s", report.throughput.samples_per_s
    known_s = report.run.duration_s * whole.coverage
    yield "power_w", (whole.resolved_j or 0.0) / known_s if known_s else None
    yield "peak_memory_bytes", report.memory.device_used_peak_bytes
    yield "mean_memory_bytes", report.memory.device_used_mean_bytes
    yield "host_memory_bytes", report.memory.host_rss_peak_bytes
    yield "host_mean_memory_bytes", report.memory.host_rss_mean_bytes


def estimated_share(reports: Sequence[EnergyReport], scope: Scope) -> float:
    """Return the mean share of the energy that models estimate; 1 if no sensor measured a run."""
    shares = []
    for report in reports:
        figure: Figure = getattr(report.energy, scope)
        parts = [one.energy for one in _devices(report, scope) if one.origin == "estimated"]
        shares.append((total(parts).energy_j or 0.0) / (figure.energy_j or math.inf))
        if figure.origin == "estimated":
            return 1.0
    return min(math.fsum(shares) / len(shares), 1.0)


def systematic_errors(
    old: Sequence[EnergyReport], new: Sequence[EnergyReport], scope: Scope
) -> tuple[float, float]:
    """Return the relative bounds of the systematic errors of both groups that do not cancel.

    Errors of energy counters cancel in the ratio if each counter measured the same share of the
    runs in both groups. All other errors do not cancel: those of models and of polled power
    depend on the load, those of imported logs and unidentified devices may be of any device.
    """
    is_same = _counters(old, scope) == _counters(new, scope)
    return _bound(old, scope, is_same), _bound(new, scope, is_same)


def _devices(report: EnergyReport, scope: Scope) -> Iterator[DeviceUse]:
    """Return the devices whose energies sum to that of the scope."""
    return (one for one in devices_in_sum(report.devices, scope) if one.energy.energy_j is not None)


def _is_counted(report: EnergyReport, device: DeviceUse) -> bool:
    """Return whether an energy counter of an identified device was read by this package."""
    methods = device.energy.method.split(", ")
    return (
        device.origin == "measured"
        and all(method.startswith("counter") for method in methods)
        and (device.uuid is not None or device.host != UNKNOWN_HOST)
        and "imported_from" not in report.environment
    )


def _counters(reports: Sequence[EnergyReport], scope: Scope) -> dict[tuple[str, str, str], float]:
    """Return, for each energy counter, the share of the runs that it measured.

    A counter is identified by host, device (its UUID if known, otherwise its key) and method.
    """
    counts = Counter(
        (one.host, one.uuid or one.key, one.energy.method)
        for report in reports
        for one in _devices(report, scope)
        if _is_counted(report, one)
    )
    return {counter: count / len(reports) for counter, count in counts.items()}


def _bound(reports: Sequence[EnergyReport], scope: Scope, counters_cancel: bool) -> float:
    """Return the largest relative bound of the error that repeated runs do not show.

    It is the systematic error of the devices whose errors do not cancel. If a sensor is among
    them, the error from the edges of the phase ``train`` is added: that error has the same sign in
    all runs with the same phases. The bound is limited to 0.99, so that the ends of intervals stay
    positive.
    """
    shares = []
    for report in reports:
        figure: Figure = getattr(report.energy, scope)
        kept = [
            one
            for one in _devices(report, scope)
            if not (counters_cancel and _is_counted(report, one))
        ]
        if kept and figure.energy_j:
            share = total([one.energy for one in kept]).systematic_j / figure.energy_j
            is_sensor = any(one.origin == "measured" for one in kept)
            shares.append(share + (_edge_share(report, scope) if is_sensor else 0.0))
    return min(max(shares, default=0.0), 0.99)


def _edge_share(report: EnergyReport, scope: Scope) -> float:
    """Return the error from edges as a share of the energy per step; 0 if that is unknown."""
    ratio: Ratio | None = getattr(report.efficiency, scope).j_per_step
    return ratio.edge_j / ratio.value_j if ratio is not None and ratio.value_j > 0.0 else 0.0
