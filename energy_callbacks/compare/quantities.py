"""The compared quantities: a value of each run, with the error of its sensors."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from energy_callbacks.core import formatting
from energy_callbacks.importers.journal_lines import UNKNOWN_HOST
from energy_callbacks.report.model import figure_format
from energy_callbacks.report.model.models import Figure, Ratio
from energy_callbacks.report.model.schema import EnergyReport

Scope = Literal["gpu", "total"]
ENERGY_TO_TARGET, TIME_TO_TARGET = "energy_to_target_j", "time_to_target_s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """Something that runs are compared by.

    Attributes:
        name: with its unit.
        title: for people.
        say: a value in words.
        is_energy: whether power sensors have part in it: gains of unlike cards count.
        is_whole: whether it is of all the work of a run, so that unlike work cannot be compared.
    """

    name: str
    title: str
    say: Callable[[float], str]
    is_energy: bool = True
    is_whole: bool = False

    @property
    def scope(self) -> Scope:
        """The devices whose sensors contribute."""
        return "gpu" if self.name.startswith("gpu_") else "total"


def _joules(value: float) -> str:
    return figure_format.ratio(Ratio(value_j=value, low_j=value, high_j=value))


# In the order of the table; the first that is known is the headline quantity.
QUANTITIES: tuple[Quantity, ...] = (
    Quantity(name=ENERGY_TO_TARGET, title="Energy to the target", say=formatting.energy),
    Quantity(name="j_per_sample", title="Energy per sample", say=_joules),
    Quantity(name="j_per_token", title="Energy per token", say=_joules),
    Quantity(name="j_per_step", title="Energy per step", say=_joules),
    Quantity(name="energy_j", title="Energy of the run", say=formatting.energy, is_whole=True),
    Quantity(name="gpu_energy_j", title="of it, GPUs", say=formatting.energy, is_whole=True),
    Quantity(
        name=TIME_TO_TARGET, title="Time to the target", say=formatting.duration, is_energy=False
    ),
    Quantity(
        name="duration_s",
        title="Time of the run",
        say=formatting.duration,
        is_energy=False,
        is_whole=True,
    ),
    Quantity(
        name="samples_per_s", title="Samples per second", say=formatting.grouped, is_energy=False
    ),
    Quantity(name="power_w", title="Mean power", say=formatting.power),
    Quantity(
        name="peak_memory_bytes", title="Peak card memory", say=formatting.size, is_energy=False
    ),
    Quantity(
        name="host_memory_bytes", title="Peak host memory", say=formatting.size, is_energy=False
    ),
)
ANSWERS: Final = (
    ENERGY_TO_TARGET, "j_per_sample", "j_per_token", "j_per_step", "energy_j", "gpu_energy_j",
)  # fmt: skip
"""The headline quantity is an energy: less power for a longer time is no saving."""
BY_NAME: Mapping[str, Quantity] = {one.name: one for one in QUANTITIES}


def values(report: EnergyReport) -> dict[str, float]:
    """All that is known of a run and positive, but for what a target decides."""
    return {name: value for name, value in _values(report) if value is not None and value > 0.0}


def _values(report: EnergyReport) -> Iterator[tuple[str, float | None]]:
    efficiency = report.efficiency.total
    for name in ("j_per_sample", "j_per_token", "j_per_step"):
        ratio: Ratio | None = getattr(efficiency, name)
        if ratio is not None and ratio.is_resolved:
            yield name, ratio.value_j
    total = report.energy.total
    yield "energy_j", _resolved_j(total)
    yield "gpu_energy_j", _resolved_j(report.energy.gpu)
    yield "duration_s", report.run.duration_s
    yield "samples_per_s", report.throughput.samples_per_s
    seen_s = report.run.duration_s * total.coverage
    yield "power_w", (_resolved_j(total) or 0.0) / seen_s if seen_s else None
    memory = report.memory
    yield "peak_memory_bytes", memory.device_used_peak_bytes
    yield "host_memory_bytes", memory.host_rss_peak_bytes


def _resolved_j(figure: Figure) -> float | None:
    return figure.energy_j if figure.is_resolved else None


def unlike_sensors(
    old: Sequence[EnergyReport], new: Sequence[EnergyReport], scope: Scope
) -> tuple[float, float]:
    """The shares by which sensors of either group may be off if they are unlike.

    If each sensor has spoken as often for the one as for the other, what it is off by is in
    both and cancels. Else both bounds stand.
    """
    if _are_known([*old, *new]) and _sensors(old) == _sensors(new):
        return 0.0, 0.0
    return _bound(old, scope), _bound(new, scope)


def _are_known(reports: Sequence[EnergyReport]) -> bool:
    """Whether the same name means the same device: logs of other programs may lack their names."""
    return all(
        one.uuid is not None or one.host != UNKNOWN_HOST
        for report in reports
        for one in report.devices
        if one.scope is not None
    )


def _sensors(reports: Sequence[EnergyReport]) -> dict[tuple[str, str, str], float]:
    """How often each device with its method has spoken, per run."""
    spoken = Counter(
        (one.host, one.uuid or one.key, one.energy.method)
        for report in reports
        for one in report.devices
        if one.scope is not None and one.counted_in is None and one.energy.energy_j is not None
    )
    return {sensor: count / len(reports) for sensor, count in spoken.items()}


def _bound(reports: Sequence[EnergyReport], scope: Scope) -> float:
    """Below one: no sensor is off by all that it says."""
    totals: list[Figure] = [getattr(report.energy, scope) for report in reports]
    shares = [one.systematic_j / one.energy_j for one in totals if one.energy_j]
    return min(max(shares, default=0.0), 0.99)
