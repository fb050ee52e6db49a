"""Inputs of the golden commands: run folders and logs of other tools, in closed form."""

import json
from pathlib import Path

from energy_callbacks.core.records import Energy
from tests.importers import logs
from tests.report import journals
from tests.report.journals import GERMANY, GPU, GPU1, PROCESS, Attempt, Stretch, Window, write

PROFILES = Path(__file__).parent / "stored" / "profiles.jsonl"
METRICS = [
    (20.0 + 10.0 * i, {"train_loss": 2.0 / i, "val_loss": 2.2 / i}, 100 * i, float(i))
    for i in range(1, 6)
]
REPEATS = (0.0, 0.004, -0.004)


def write_all(folder: Path) -> None:
    """Write every input into a folder."""
    _runs(folder)
    _repeats(folder)
    _logs(folder)


def _runs(folder: Path) -> None:
    validation = Window(
        name="validation", start_s=40.0, end_s=45.0, energy_j={"gpu0": 1500.0, "cpu0": 400.0}
    )
    known = {"place": GERMANY, "price_per_kwh": 0.3, "pue": 1.2}
    write(
        folder / "usual",
        Attempt(
            windows=(validation,),
            config=known,
            metrics=METRICS,
            tokens_per_step=512,
            tags={"lr": "1e-3"},
            warnings=[("power", "a sensor said so")],
            unavailable=[("RAPL", "no permission", "sudo chmod o+r energy_uj")],
            missed={"nvml": 3},
            wait_energy={"gpu0": Energy(energy_j=300.0, stderr_j=1.0, method="counter")},
        ),
    )
    for rank, gpu in enumerate((GPU, GPU1)):
        power_w = {gpu.key: 500.0 - 50.0 * rank, **({"cpu0": 100.0} if rank == 0 else {})}
        train = Stretch(phase="train", duration_s=60.0, power_w=power_w)
        devices = (gpu, journals.CPU, PROCESS) if rank == 0 else (gpu, PROCESS)
        made = Attempt(
            rank=rank, world_size=3, devices=devices, stretches=(train,), wait_s=0.01 + 0.02 * rank
        )
        write(folder / "ranks", made)
    killed = Attempt(cut_off_at_s=70.0, metrics=METRICS, job={"system": "slurm", "id": "77"})
    write(folder / "resumed", killed)
    again = Attempt(attempt=2, unix_s=1_790_000_100.0, resumed_at_step=400, metrics=METRICS)
    write(folder / "resumed", again)
    failed = Attempt(status="failed", error="RuntimeError: no", memory_grows=20.0, coverage=0.8)
    write(folder / "failed", failed)
    path = write(folder / "profiled", Attempt(config=known, samples_per_step=None))
    lines = path.read_text(encoding="utf-8").splitlines()
    profiles = PROFILES.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([*lines[:-1], *profiles, lines[-1]]) + "\n", encoding="utf-8")


def _repeats(folder: Path) -> None:
    for place, (name, power_w) in enumerate((("old", 500.0), ("new", 450.0))):
        for repeat, noise in enumerate(REPEATS):
            watt = {"gpu0": power_w * (1.0 + noise * (1 - 2 * place)), "cpu0": 100.0}
            train = Stretch(phase="train", duration_s=60.0, power_w=watt)
            losses = [(t_s, {"val_loss": v["val_loss"] + noise}, s, e) for t_s, v, s, e in METRICS]
            made = Attempt(
                run_id=f"{name}{repeat}",
                unix_s=1_790_000_000.0 + 100.0 * (2 * repeat + place),
                stretches=(journals.IDLE, train),
                metrics=losses,
            )
            write(folder / name / f"run{repeat}", made)


def _logs(folder: Path) -> None:
    moments = logs.times(60, 0.5)
    logs.as_json(folder / "gputop.json", [logs.native(at, 200.0 + at.second) for at in moments])
    logs.smi(
        folder / "smi.csv",
        [f"{logs.smi_time(at)}, {200.0 + at.second} W" for at in moments],
    )
    frames = [json.dumps(logs.frame(1_790_000_000 + i)) for i in range(30)]
    (folder / "all_smi.ndjson").write_text("\n".join(frames) + "\n", encoding="utf-8")
