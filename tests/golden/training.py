"""A training in virtual time: its journal, its event file, its rows and its report."""

import json
from pathlib import Path
from typing import Any

from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.core.records import Device
from energy_callbacks.outputs.tensorboard import TensorBoardOutput
from energy_callbacks.testing import FakeClock, InMemoryOutput, ScriptedSource

# Values that depend on the machine or on the time.
_OF_THE_MACHINE = ("host", "pid", "ppid", "environment", "sampler_cpu_s", "run_id")


def train(folder: Path) -> None:
    """Write ``journal.jsonl``, ``rows.json`` and ``events.txt`` into the folder."""
    clock = FakeClock()
    gpu = Device(key="gpu0", kind="gpu", scope="gpu", name="a card", uuid="GPU-1", index=0)
    cpu = Device(key="cpu0", kind="cpu", scope="host", name="a CPU", origin="estimated")
    sources = [
        ScriptedSource(
            clock, power_w=lambda _: 300.0, energy_j=lambda t_s: 300.0 * t_s, device=gpu
        ),
        ScriptedSource(clock, power_w=lambda t_s: 100.0 + 10.0 * (int(t_s) % 3), device=cpu),
    ]
    memory = InMemoryOutput()
    config = EnergyConfig(
        report_dir=folder / "run", country="DEU", run_name="golden", tags={"of": "it"}
    )
    outputs = [memory, TensorBoardOutput(folder / "events")]
    with EnergyMeter(config=config, sources=sources, clock=clock, outputs=outputs) as meter:
        clock.advance(1.0)
        with meter.phase("train"):
            for step in range(1, 41):
                clock.advance(0.5)
                meter.step(samples=32, tokens=512)
                if step % 5 == 0:
                    meter.log(step)
                if step % 20 == 0:
                    _validate(meter, clock)
    _write(folder, memory)


def _validate(meter: EnergyMeter, clock: FakeClock) -> None:
    with meter.phase("validation"):
        clock.advance(2.0)


def _write(folder: Path, memory: InMemoryOutput) -> None:
    [path] = (folder / "run").glob("attempts/*/*.jsonl")
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    lines = (json.dumps(_without_the_machine(record)) + "\n" for record in records)
    (folder / "journal.jsonl").write_text("".join(lines), encoding="utf-8")
    rows = [[step, row] for step, row in memory.rows]
    (folder / "rows.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
    events = [
        str(event)
        for file in sorted((folder / "events").rglob("events.out.tfevents.*"))
        for event in EventFileLoader(str(file)).Load()
        if not event.file_version
    ]
    kept = (
        line
        for line in "".join(events).splitlines(keepends=True)
        if not line.startswith(("wall_time", "source_metadata"))
    )
    (folder / "events.txt").write_text("".join(kept), encoding="utf-8")


def _without_the_machine(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key not in _OF_THE_MACHINE}
