"""What serving has shown: throughput, latencies, energy and time above the cap."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from energy_callbacks.core import formatting
from energy_callbacks.core.tables import aligned
from energy_callbacks.inference.control.protocols import Window
from energy_callbacks.inference.records import Source
from energy_callbacks.inference.serve.tenant_energy import TenantEnergies


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """The requests for one model, or for all.

    Attributes:
        arrived: number that arrived.
        answered: number that were answered.
        waiting: number that still waited for their answer at the end, in the queue or in a batch.
        latencies_ms: 50, 95 and 99 % quantiles of the time from arrival to answer, ms; empty if
            none was answered.
    """

    arrived: int
    answered: int
    waiting: int
    latencies_ms: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeReport:
    """The result of serving.

    Attributes:
        algorithm: name of the controller.
        degraded: how it worked without what it needs; empty if it had everything.
        source: ``measured`` or ``simulated``.
        device: name of the GPU.
        windows: each window, with its cap in W.
        requests: requests for each model.
        total: all requests.
        returned: requests whose tenant failed before the answer; they were queued again.
        changes: changes of tenants, without the first.
        refused: why tenants could not be loaded.
        notes: what tenants say about how they run their models.
        energies: energies of the tenants.
        tuned: what the shadow tuner has done; empty without one.
        is_interrupted: whether Ctrl-C has ended it.
    """

    algorithm: str
    degraded: str
    source: Source
    device: str
    windows: Sequence[tuple[Window, float]]
    requests: Mapping[str, Requests]
    total: Requests
    returned: int
    changes: int
    refused: Sequence[str]
    notes: Sequence[str]
    energies: TenantEnergies
    tuned: Sequence[str] = ()
    is_interrupted: bool = False

    @property
    def duration_s(self) -> float:
        """Time of all windows, s."""
        return sum(window.end_s - window.start_s for window, _ in self.windows)

    @property
    def energy_j(self) -> float:
        """Energy of the device, J."""
        return sum(one.power_mean_w * (one.end_s - one.start_s) for one, _ in self.windows)

    @property
    def above_cap_s(self) -> float:
        """Time of the windows whose mean power is above the cap, s."""
        above = (one for one, cap_w in self.windows if one.power_mean_w > cap_w)
        return sum(one.end_s - one.start_s for one in above)

    @property
    def throughput_per_s(self) -> float:
        """Answered requests per second."""
        return self.total.answered / self.duration_s

    @property
    def request_j(self) -> float | None:
        """Energy of the device per answered request, J; ``None`` if none was answered."""
        return self.energy_j / self.total.answered if self.total.answered else None

    def as_json(self) -> dict[str, Any]:
        """Return the report as values of JSON types."""
        return {
            "algorithm": self.algorithm,
            "degraded": self.degraded,
            "source": self.source,
            "device": self.device,
            "interrupted": self.is_interrupted,
            "duration_s": self.duration_s,
            "throughput_per_s": self.throughput_per_s,
            "energy_j": self.energy_j,
            "request_j": self.request_j,
            "above_cap_s": self.above_cap_s,
            "above_cap_share": self.above_cap_s / self.duration_s,
            "total": asdict(self.total),
            "requests": {model: asdict(one) for model, one in self.requests.items()},
            "returned": self.returned,
            "changes": self.changes,
            "refused": list(self.refused),
            "notes": list(self.notes),
            "tenant_energy": self.energies.as_json(),
            "tuned": list(self.tuned),
            "windows": [_window_json(one, cap_w) for one, cap_w in self.windows],
        }

    def text(self) -> str:
        """Return the report as text."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        estimate = " (estimate of a model)" if self.energies.is_estimate else ""
        label = " (simulated)" if self.source == "simulated" else estimate
        end = ", interrupted" if self.is_interrupted else ""
        yield f"{self.algorithm} on {self.device}, {formatting.duration(self.duration_s)}{end}"
        if self.degraded:
            yield f"degraded: {self.degraded}"
        head = ("model", "requests", "answered", "waiting", "p50 ms", "p95 ms", "p99 ms")
        rows = [_cells(model, one) for model, one in self.requests.items()]
        yield from aligned([head, *rows, _cells("all", self.total)], "<>")
        per = "-" if self.request_j is None else formatting.significant(self.request_j, 3)
        yield f"throughput  {formatting.significant(self.throughput_per_s, 4)} requests/s"
        total = _joules(self.energy_j)
        yield f"energy      {total}{label}, {per} J/request"
        share = formatting.percent(self.above_cap_s / self.duration_s)
        yield f"above cap   {formatting.significant(self.above_cap_s, 3)} s, {share} of the time"
        yield f"changes     {self.changes} of tenants; {self.returned} requests were queued again"
        yield from (f"refused     {note}" for note in self.refused)
        yield from (f"note        {note}" for note in self.notes)
        yield from (f"shadow      {note}" for note in self.tuned)
        yield from _energy_lines(self.energies)


def _cells(model: str, one: Requests) -> tuple[str, ...]:
    counts = (one.arrived, one.answered, one.waiting)
    times = (one.latencies_ms.get(name) for name in ("p50", "p95", "p99"))
    return (
        model,
        *map(str, counts),
        *("-" if value is None else formatting.significant(value, 3) for value in times),
    )


def _energy_lines(energies: TenantEnergies) -> Iterator[str]:
    rows = [
        (f"{one.model} {one.share_pct:g} % b={one.batch}", _joules(energy_j))
        for one, energy_j in energies.tenants_j.items()
    ]
    is_attributed = bool(energies.tenants_j)
    how = ", attributed by the activity of multiprocessors" if is_attributed else ""
    yield f"energy by tenant{how}"
    parts = [*rows, ("idle", _joules(energies.idle_j))]
    if energies.reason:
        parts.append((f"not attributed: {energies.reason}", _joules(energies.not_attributed_j)))
    total = "estimated total" if energies.is_estimate else "measured total"
    yield from aligned([*parts, (total, _joules(energies.total_j))], "<>")


def _joules(energy_j: float) -> str:
    return f"{formatting.significant(energy_j, 4)} J"


def _window_json(one: Window, cap_w: float) -> dict[str, Any]:
    return {
        "start_s": one.start_s,
        "end_s": one.end_s,
        "cap_w": cap_w,
        "power_mean_w": one.power_mean_w,
        "throughput_per_s": one.throughput_per_s,
        "duty": one.point.duty,
        "is_steady": one.is_steady,
    }
