"""Samples in the format of GPU loggers, compared with a run in closed form."""

import json
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from energy_callbacks.accounting.journal import journal
from energy_callbacks.report.build import gather
from energy_callbacks.report.charts import gpu_stats_plot
from energy_callbacks.report.collect import gpu_stats
from tests.report.journals import CPU, GPU, GPU1, Attempt, Stretch, write

FIELDS = {
    "timestamp", "elapsed_seconds", "gpu_index", "gpu_name", "gpu_type", "utilization",
    "memory_used", "memory_total", "memory_percent", "power", "temperature", "fan_speed",
    "clocks", "training_metadata", "memory_utilization",
}  # fmt: skip


@pytest.fixture
def samples(tmp_path: Path) -> list[gpu_stats.Sample]:
    """20 s idle at 80 W, 60 s of training at 500 W with an epoch that ends at 50 s; two cards."""
    watts = [{"gpu0": w, "gpu1": 2.0 * w, "cpu0": 40.0} for w in (80.0, 500.0)]
    attempt = Attempt(devices=(GPU, GPU1, CPU), stretches=(
        Stretch(phase="idle", duration_s=20.0, power_w=watts[0]),
        Stretch(phase="train", duration_s=60.0, power_w=watts[1]),
    ))  # fmt: skip
    path = write(tmp_path, attempt)
    with path.open("a") as file:
        event = {"type": "event", "kind": "epoch", "t_s": 50.0, "epoch": 0}
        file.write(json.dumps(event) + "\n")
    return gpu_stats.samples(gather(tmp_path))


def test_one_record_a_sample_of_each_card(samples: list[gpu_stats.Sample]) -> None:
    """Two cards give two samples per second for 80 s, in the units of loggers."""
    assert len(samples) == 2 * 160
    assert all(set(sample) == FIELDS for sample in samples)
    last = next(s for s in reversed(samples) if s["gpu_index"] == 0)
    assert last["elapsed_seconds"] == 80.0
    assert last["power"] == pytest.approx(500.0)
    assert last["utilization"] == 75.0
    assert last["memory_utilization"] == 30.0
    assert last["clocks"] == {"memory": 2600}
    assert last["memory_used"] == pytest.approx((40e9 + 1e8 * 80) / 2**20, rel=1e-3)
    assert last["temperature"] == 58.0
    assert last["memory_total"] is last["memory_percent"] is last["fan_speed"] is None
    moment = datetime.fromisoformat(last["timestamp"])
    assert moment.timestamp() == pytest.approx(1_790_000_080.0, abs=1e-3)


def test_each_knows_what_the_training_was_doing(samples: list[gpu_stats.Sample]) -> None:
    """Metadata has the phase and the numbers of finished epochs and of finished steps of 0.1 s."""
    found = {s["elapsed_seconds"]: s["training_metadata"] for s in samples}
    assert found[10.0] == {
        "model": "resnet", "training_command": "python train.py --lr 1e-3",
        "phase": "idle", "epoch": 0, "batch": 0,
    }  # fmt: skip
    assert [found[60.0][name] for name in ("phase", "epoch", "batch")] == ["train", 1, 400]


def test_a_row_at_the_end_has_the_last_phase(tmp_path: Path) -> None:
    """Its power is the mean before the end; its time may have been rounded upwards."""
    train = Stretch(phase="train", duration_s=2.0060287, power_w={"gpu0": 500.0})
    write(tmp_path, Attempt(devices=(GPU,), stretches=(train,)))
    lead = gather(tmp_path)[0].lead
    states = gpu_stats._training_states(lead, np.array([1.0, 2.006029, 3.0]))
    assert [state["phase"] for state in states] == ["train", "train", None]


def test_the_files(samples: list[gpu_stats.Sample], tmp_path: Path) -> None:
    """The JSON reads back, the table has the means, and the chart is a PNG."""
    gpu_stats.write(samples, tmp_path / "stats.json")
    assert json.loads((tmp_path / "stats.json").read_text()) == samples
    table = gpu_stats.summary(samples)
    assert "gpu0    NVIDIA H200, 160 samples" in table
    power = next(line for line in table.splitlines() if "power" in line)
    assert power.split() == ["power", "395", "W", "500", "W"]
    gpu_stats_plot.save(samples, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes()[:4] == b"\x89PNG"
    assert max(map(len, table.splitlines())) <= 80


def test_memory_of_a_card_whose_size_is_known(tmp_path: Path) -> None:
    """The share of the memory in use is given in percent."""
    path = write(tmp_path, Attempt())
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if line["type"] == "device" and line["device"]["kind"] == "gpu":
            line["device"]["memory_bytes"] = 80 * 10**9
    path.unlink()
    writer = journal.JournalWriter(path)
    for line in lines:
        writer.write(line)
    writer.close()
    first = gpu_stats.samples(gather(tmp_path))[0]
    assert first["memory_percent"] == pytest.approx(50.06, abs=0.01)


def test_the_phase_at_a_moment_is_the_last_that_covers_it() -> None:
    """Nested, separate and reversed phases, compared with a linear search."""
    stretches = [("a", 0.0, 4.0), ("b", 6.0, 9.0), ("c", 1.0, 2.0), ("d", 8.0, 7.0)]
    tenths_s = np.arange(-10, 110) / 10.0
    names = gpu_stats._phases_at(stretches, tenths_s)
    for t_s, name in zip(tenths_s, names, strict=True):
        inside = [name for name, start_s, end_s in stretches if start_s <= t_s < end_s]
        assert name == (inside[-1] if inside else None), t_s
