"""Writes a journal and a report as this version does: ``python -m tests.report.write_samples``.

For the tests of later versions, which must read them. A sample that is there stays as it is:
``tests/report/samples/journal_<version>.jsonl`` and ``report_<version>.json``.
"""

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.accounting.journal import journal
from energy_callbacks.core.records import Device
from energy_callbacks.report import build
from energy_callbacks.report.model import schema
from energy_callbacks.testing import FakeClock, ScriptedSource

SAMPLES = Path(__file__).parent / "samples"
GPU_W, HOST_W = 300.0, 100.0
IDLE_S, STEP_S, STEPS, SAMPLES_A_STEP = 1.0, 0.5, 8, 32


def measured(folder: Path) -> Path:
    """A training of 8 steps after a second of idling, in virtual time; its journal."""
    clock = FakeClock()
    gpu = Device(key="gpu0", kind="gpu", scope="gpu", name="a card", uuid="GPU-1", index=0)
    cpu = Device(key="cpu0", kind="cpu", scope="host", name="a CPU", origin="estimated")
    sources = [
        ScriptedSource(
            clock, power_w=lambda _: GPU_W, energy_j=lambda t_s: GPU_W * t_s, device=gpu
        ),
        ScriptedSource(clock, power_w=lambda _: HOST_W, device=cpu),
    ]
    config = EnergyConfig(report_dir=folder, country="DEU", run_name="a sample", tags={"of": "it"})
    with EnergyMeter(config=config, sources=sources, clock=clock) as meter:
        clock.advance(IDLE_S)
        with meter.phase("train"):
            for _ in range(STEPS):
                clock.advance(STEP_S)
                meter.step(samples=SAMPLES_A_STEP)
    [path] = folder.glob("attempts/*/*.jsonl")
    return path


def _anonymous(line: str) -> str:
    """The same without this machine."""
    record: dict[str, Any] = json.loads(line)
    if record["type"] == "header":
        record["host"] = "node1"
        record["environment"] |= {"command": "python train.py", "platform": "Linux", "packages": {}}
    return json.dumps(record, separators=(",", ":")) + "\n"


def main(folder: Path = SAMPLES) -> None:
    """Write what is missing."""
    folder.mkdir(exist_ok=True)
    sample = folder / f"journal_{journal.VERSION}.jsonl"
    saved = folder / f"report_{schema.SCHEMA_VERSION}.json"
    with tempfile.TemporaryDirectory() as scratch:
        lines = measured(Path(scratch)).read_text(encoding="utf-8").splitlines()
        path = Path(scratch) / "sample.jsonl"
        path.write_text("".join(map(_anonymous, lines)), encoding="utf-8")
        if not saved.exists():
            saved.write_text(schema.to_json(build(path)), encoding="utf-8")
        if not sample.exists():
            shutil.copy(path, sample)


if __name__ == "__main__":
    main()
