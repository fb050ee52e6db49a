"""Journals as a training would have written them, from parameters and closed forms.

Power is constant within each phase, so that every energy in a test has a value that can be
worked out on paper: watts times seconds.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from energy_callbacks.accounting.journal import journal
from energy_callbacks.core.records import Channel, Device, Energy, Quantity, Sensor

NVML = Sensor(
    name="nvmlDeviceGetSamples",
    period_s=0.02,
    relative_error=0.01,
    is_buffered=True,
    citation="NVML reference, nvmlDeviceGetSamples",
)
RAPL = Sensor(name="/sys/class/powercap/intel-rapl:0/energy_uj", period_s=0.001)
MODEL = Sensor(name="CodeCarbon's CPU model", period_s=1.0, relative_error=0.3)
RSS = Sensor(name="psutil.Process.memory_info", period_s=0.5)

GERMANY = {
    "country": "DEU",
    "country_name": "Germany",
    "region": None,
    "origin": "set by the user",
}

GPU = Device(key="gpu0", kind="gpu", scope="gpu", name="NVIDIA H200", index=0, uuid="GPU-aaaa")
GPU1 = Device(key="gpu1", kind="gpu", scope="gpu", name="NVIDIA H200", index=1, uuid="GPU-bbbb")
CPU = Device(key="cpu0", kind="cpu", scope="host", name="Xeon", origin="estimated")
MACHINE = Device(key="machine", kind="machine", scope="machine", name="DCMI power reading")
PROCESS = Device(key="process", kind="process", scope=None, name="training process")

SENSORS: dict[str, dict[Quantity, Sensor]] = {
    "gpu": {"power": NVML, "memory_used": NVML, "utilisation": NVML},
    "cpu": {"power": MODEL},
    "dram": {"power": MODEL},
    "machine": {"power": Sensor(name="ipmitool dcmi power reading", period_s=1.0)},
    "process": {"rss": RSS},
}


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """A phase of constant power."""

    phase: str
    duration_s: float
    power_w: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Window:
    """A validation inside a phase, named afterwards, at a power of its own."""

    name: str
    start_s: float
    end_s: float
    energy_j: Mapping[str, float]


TRAIN = Stretch(phase="train", duration_s=60.0, power_w={"gpu0": 500.0, "cpu0": 100.0})
IDLE = Stretch(phase="idle", duration_s=20.0, power_w={"gpu0": 80.0, "cpu0": 40.0})
TWO_PHASES = (IDLE, TRAIN)


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One process of one attempt.

    Attributes:
        metrics: records of the user's metrics: when, values, step, epoch.
        memory_grows: as fast as usual, times this.
        job: of a batch system, as ``accounting.job`` finds it.
        cut_off_at_s: when the process was killed: no later line, no totals.
        relative_error: systematic bound of each energy, as a share of it.
        edge_j: error from the edges of each span, each window and the attempt.
        wait_energy: while it waited for data, of the first ``wait_known_s`` of waiting.
    """

    run_id: str = "run-a"
    attempt: int = 1
    host: str = "node1"
    rank: int = 0
    world_size: int = 1
    launch: str | None = None
    unix_s: float = 1_790_000_000.0
    job: Mapping[str, str | None] | None = None
    framework: str = "lightning"
    run_name: str | None = "resnet"
    tags: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    devices: Sequence[Device] = (GPU, CPU, PROCESS)
    stretches: Sequence[Stretch] = TWO_PHASES
    windows: Sequence[Window] = ()
    metrics: Sequence[tuple[float, Mapping[str, float], int | None, float | None]] = ()
    status: str = "finished"
    error: str | None = None
    cut_off_at_s: float | None = None
    resumed_at_step: int | None = None
    samples_per_step: int | None = 32
    tokens_per_step: int | None = None
    step_s: float = 0.1
    wait_s: float | None = 0.01
    wait_energy: Mapping[str, Energy] | None = None
    wait_known_s: float = 6.0
    row_s: float = 0.5
    memory_grows: float = 1.0
    coverage: float = 1.0
    relative_error: float = 0.01
    edge_j: float = 0.0
    unavailable: Sequence[tuple[str, str, str]] = ()
    warnings: Sequence[tuple[str, str]] = ()
    missed: Mapping[str, int] = field(default_factory=dict)

    @property
    def length_s(self) -> float:
        """When the last line is written."""
        whole_s = sum(stretch.duration_s for stretch in self.stretches)
        return whole_s if self.cut_off_at_s is None else min(self.cut_off_at_s, whole_s)

    @cached_property
    def segments(self) -> Mapping[str, Sequence[tuple[float, float, float]]]:
        """(start, end, watts) of each device, without the windows."""
        edges = list(itertools.accumulate((s.duration_s for s in self.stretches), initial=0.0))
        found: dict[str, list[tuple[float, float, float]]] = {}
        for stretch, (start_s, end_s) in zip(
            self.stretches, itertools.pairwise(edges), strict=True
        ):
            for key, power_w in stretch.power_w.items():
                found.setdefault(key, []).append((start_s, end_s, power_w))
        return found


def write(folder: Path, attempt: Attempt) -> Path:
    """Write one journal into a run folder; returns its path."""
    path = journal.path_for(folder, attempt.attempt, attempt.host, attempt.rank)
    writer = journal.JournalWriter(path)
    for record in _records(attempt):
        writer.write(record)
    writer.close()
    return path


def _records(attempt: Attempt) -> list[dict[str, Any]]:
    records = [_header(attempt), *_devices(attempt)]
    records += [
        {"type": "unavailable", "t_s": 0.0, "source": source, "reason": reason, "fix": fix}
        for source, reason, fix in attempt.unavailable
    ]
    records += [
        {"type": "warning", "t_s": 0.0, "code": code, "message": message}
        for code, message in attempt.warnings
    ]
    if attempt.resumed_at_step is not None:
        records.append(
            {"type": "event", "kind": "resume", "t_s": 0.0, "step": attempt.resumed_at_step}
        )
    timed = [*_spans(attempt), *_windows(attempt), *_steps(attempt), *_metrics(attempt)]
    timed += _rows(attempt)
    records += [record for t_s, record in sorted(timed, key=lambda pair: pair[0])]
    if attempt.cut_off_at_s is None:
        records.append(_totals(attempt))
    return records


def _header(attempt: Attempt) -> dict[str, Any]:
    return {
        "type": "header",
        "format": journal.FORMAT,
        "version": journal.VERSION,
        "run_id": attempt.run_id,
        "attempt": attempt.attempt,
        "host": attempt.host,
        "rank": attempt.rank,
        "local_rank": attempt.rank,
        "world_size": attempt.world_size,
        "launch": attempt.launch,
        "pid": 4242,
        "unix_s": attempt.unix_s,
        "run_name": attempt.run_name,
        "tags": dict(attempt.tags),
        "framework": attempt.framework,
        "framework_version": "2.6.0",
        "config": {"place": {"country": None}, "pue": 1.0, "price_per_kwh": None}
        | dict(attempt.config),
        "environment": {
            "tool_version": "0.1.0",
            "python": "3.11.9",
            "platform": "Linux-6.8-x86_64",
            "command": "python train.py --lr 1e-3",
            "git_commit": "0123456789ab",
            "packages": {"torch": "2.13.0", "numpy": "2.3.4"},
            "cpu_count": 64,
            "job": {"SLURM_JOB_ID": "77"},
        },
        "job": attempt.job,
    }


def _devices(attempt: Attempt) -> list[dict[str, Any]]:
    return [
        journal.device_record(
            device,
            [
                Channel(device=device, quantity=quantity, kind="gauge", sensor=sensor)
                for quantity, sensor in SENSORS[device.kind].items()
            ],
        )
        for device in attempt.devices
    ]


def _keys(attempt: Attempt) -> list[str]:
    return [device.key for device in attempt.devices if device.scope is not None]


def joules(attempt: Attempt, key: str, start_s: float, end_s: float) -> float | None:
    """Watts times seconds; ``None`` for a device of which nothing is known."""
    segments = attempt.segments.get(key)
    if not segments:
        return None
    known = (
        power_w * (min(end_s, last_s) - max(start_s, first_s))
        for first_s, last_s, power_w in segments
        if first_s < end_s and last_s > start_s
    )
    return sum(known, start=0.0)


def _energy(attempt: Attempt, energy_j: float | None) -> dict[str, Any]:
    if energy_j is None:
        return journal.energy_as_json(Energy(energy_j=None))
    return journal.energy_as_json(
        Energy(
            energy_j=energy_j,
            stderr_j=1.0,
            edge_j=attempt.edge_j,
            systematic_j=attempt.relative_error * energy_j,
            method="counter+samples",
            coverage=attempt.coverage,
        )
    )


def _energies(attempt: Attempt, start_s: float, end_s: float) -> dict[str, Any]:
    return {key: _energy(attempt, joules(attempt, key, start_s, end_s)) for key in _keys(attempt)}


def _spans(attempt: Attempt) -> list[tuple[float, dict[str, Any]]]:
    lines: list[tuple[float, dict[str, Any]]] = []
    start_s = 0.0
    for stretch in attempt.stretches:
        end_s = start_s + stretch.duration_s
        if start_s < attempt.length_s:
            entered = {"type": "event", "kind": "phase", "t_s": start_s, "phase": stretch.phase}
            lines.append((start_s, entered))
        if end_s <= attempt.length_s:
            span = {
                "type": "event",
                "kind": "span",
                "phase": stretch.phase,
                "start_s": start_s,
                "end_s": end_s,
                "energy": _energies(attempt, start_s, end_s),
            }
            lines.append((end_s, span))
        start_s = end_s
    return lines


def _windows(attempt: Attempt) -> list[tuple[float, dict[str, Any]]]:
    return [
        (
            window.end_s,
            {
                "type": "event",
                "kind": "window",
                "name": window.name,
                "start_s": window.start_s,
                "end_s": window.end_s,
                "energy": {
                    key: _energy(attempt, energy_j) for key, energy_j in window.energy_j.items()
                },
            },
        )
        for window in attempt.windows
    ]


def _steps(attempt: Attempt) -> list[tuple[float, dict[str, Any]]]:
    """A line a second for each stretch of training."""
    lines: list[tuple[float, dict[str, Any]]] = []
    start_s, last_step = 0.0, 0
    for stretch in attempt.stretches:
        seconds = range(int(stretch.duration_s)) if stretch.phase == "train" else range(0)
        for second in seconds:
            first_s, end_s = start_s + second, start_s + second + 1.0
            if end_s > attempt.length_s:
                break
            steps = round(1.0 / attempt.step_s)
            last_step += steps
            lines.append((end_s, _steps_line(attempt, first_s, end_s, steps, last_step)))
        start_s += stretch.duration_s
    return lines


def _steps_line(
    attempt: Attempt, start_s: float, end_s: float, steps: int, last_step: int
) -> dict[str, Any]:
    def times(per_step: int | None) -> int | None:
        return None if per_step is None else per_step * steps

    return {
        "type": "event",
        "kind": "steps",
        "start_s": start_s,
        "end_s": end_s,
        "steps": steps,
        "samples": times(attempt.samples_per_step),
        "tokens": times(attempt.tokens_per_step),
        "last_step": last_step,
        "data_wait_s": None if attempt.wait_s is None else attempt.wait_s * steps,
        "energy": _energies(attempt, start_s, end_s),
    }


def _metrics(attempt: Attempt) -> list[tuple[float, dict[str, Any]]]:
    event = {"type": "event", "kind": "metrics"}
    return [
        (t_s, event | {"t_s": t_s, "step": step, "epoch": epoch, "values": dict(values)})
        for t_s, values, step, epoch in attempt.metrics
        if t_s <= attempt.length_s
    ]


def _rows(attempt: Attempt) -> list[tuple[float, dict[str, Any]]]:
    count = round(attempt.length_s / attempt.row_s)
    return [
        (t_s, {"type": "series", "t_s": t_s, "devices": _row(attempt, t_s)})
        for t_s in (attempt.row_s * (number + 1) for number in range(count))
    ]


def _row(attempt: Attempt, t_s: float) -> dict[str, Any]:
    devices: dict[str, Any] = {}
    grown_s = attempt.memory_grows * t_s
    for device in attempt.devices:
        row: dict[str, Any] = {}
        energy_j = joules(attempt, device.key, 0.0, t_s)
        if device.scope is not None and energy_j is not None:
            last_j = joules(attempt, device.key, 0.0, t_s - attempt.row_s)
            row = {"energy_j": energy_j, "power_w": (energy_j - (last_j or 0.0)) / attempt.row_s}
        if device.kind == "gpu":
            row |= {"memory_used_bytes": 40e9 + 1e8 * grown_s, "utilisation": 0.75}
            row |= {"memory_utilisation": 0.3, "memory_clock_hz": 2.6e9}
            row |= {"temperature_c": 50.0 + t_s / 10.0, "throttled_s": 7.0 + 0.01 * t_s}
        if device.kind == "process":
            row = {"rss_bytes": 2e9 + 1e7 * grown_s, "peak_allocated_bytes": 30e9}
        devices[device.key] = row
    return devices


def _totals(attempt: Attempt) -> dict[str, Any]:
    return {
        "type": "totals",
        "t_s": attempt.length_s,
        "status": attempt.status,
        "error": attempt.error,
        "energy": _energies(attempt, 0.0, attempt.length_s),
        **data_wait(attempt),
        "sampler_cpu_s": 0.4,
        "missed_readings": dict(attempt.missed),
    }


def data_wait(attempt: Attempt) -> dict[str, Any]:
    """What the lines ``so_far`` and ``totals`` hold of waiting."""
    if attempt.wait_energy is None:
        return {}
    energies = {key: journal.energy_as_json(found) for key, found in attempt.wait_energy.items()}
    return {"data_wait": {"duration_s": attempt.wait_known_s, "energy": energies}}
