"""Roofline and bandwidth of cards before Hopper, which have no counter of memory traffic."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from energy_callbacks import EnergyMeter
from energy_callbacks.profiling.kernels import KernelProfiler
from energy_callbacks.report.model.profile_kernels import KernelProfile
from tests.fake_nvml import (
    Card,
    Constant,
    FakeNvml,
    Scenario,
    a100,
    average_1s,
    fixtures,
    h200,
    l4,
    t4,
    v100,
)
from tests.powercap.nvml_clock import NvmlClock
from tests.profiling.kernels.cuda_trace import ADD, GEMM, Work, trace
from tests.profiling.kernels.lab import FakeRecorder

fake_nvml = fixtures.fake_nvml
STEP_S = 0.01
# FLOP/s and bytes per second of the data sheets; of a GeForce RTX 3090 with sums in float32.
OLDER = pytest.mark.parametrize(
    ("preset", "sheet"),
    [
        (t4, (65e12, 320e9)),
        (v100, (125e12, 900e9)),
        (a100, (312e12, 2039e9)),
        (average_1s, (71e12, 936e9)),
        (l4, (121e12, 300e9)),
    ],
)


def profiled(
    nvml: FakeNvml, folder: Path, patch: pytest.MonkeyPatch, kernel: str, flops_per_step: float
) -> KernelProfile:
    """The profile in the report of a training that runs one kernel all the time."""
    work = (Work(name=kernel, asked_us=0.0, start_us=10.0, duration_us=9_900.0),)
    FakeRecorder(document=lambda: trace(work)).install(patch)
    clock = NvmlClock(nvml)
    profiler = KernelProfiler(windows_after=(100,), flops_per_step=flops_per_step)
    meter = EnergyMeter(clock=clock, devices=[0], report_dir=folder, profilers=[profiler])
    with meter, meter.phase("train"):
        for _ in range(1_000):
            clock.advance(STEP_S)
            meter.step()
    profile = meter.report().profile
    assert profile is not None
    assert profile.kernels is not None
    return profile.kernels


@OLDER
def test_arithmetic_is_the_limit(
    fake_nvml: Callable[..., FakeNvml],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    preset: Callable[..., Card],
    sheet: tuple[float, float],
) -> None:
    """Half of the peak with memory used for a fifth of the time is at 2.5 times the ridge."""
    nvml = fake_nvml(Scenario(cards=(preset(Constant(60.0), memory_utilisation_percent=20.0),)))
    flops = 0.5 * sheet[0]
    found = profiled(nvml, tmp_path, monkeypatch, GEMM, flops * STEP_S)
    roof = found.roofline
    assert roof is not None
    assert roof.flops_per_s == pytest.approx(flops)
    assert roof.peak_flops_per_s == pytest.approx(sheet[0], rel=0.05)
    assert roof.ridge == pytest.approx(sheet[0] / sheet[1], rel=0.05)
    assert roof.flops_per_byte == pytest.approx(2.5 * roof.ridge, rel=0.05)
    assert roof.is_lower_bound
    assert found.activity == {"memory_utilisation": pytest.approx(0.2)}
    assert found.bound == "compute"
    assert "memory bandwidth would allow more operations" in found.sentence


@OLDER
def test_memory_is_the_limit(
    fake_nvml: Callable[..., FakeNvml],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    preset: Callable[..., Card],
    sheet: tuple[float, float],
) -> None:
    """Kernels that move bytes, with memory used for nine tenths of the time."""
    nvml = fake_nvml(Scenario(cards=(preset(Constant(60.0), memory_utilisation_percent=90.0),)))
    found = profiled(nvml, tmp_path, monkeypatch, ADD, 0.01 * sheet[0] * STEP_S)
    assert found.bound == "memory"
    (traffic,) = (line for line in found.evidence if line.startswith("memory traffic was at most"))
    most_tb_per_s = float(traffic.split(" of ")[1].split(",")[0])
    assert most_tb_per_s == pytest.approx(sheet[1] / 1e12, rel=0.05)


def test_the_counter_precedes(
    fake_nvml: Callable[..., FakeNvml], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An H200 has both; the used bandwidth is the better evidence."""
    card = h200(Constant(300.0), dram_active_percent=30.0, memory_utilisation_percent=90.0)
    nvml = fake_nvml(Scenario(cards=(card,)))
    found = profiled(nvml, tmp_path, monkeypatch, GEMM, 5e14 * STEP_S)
    assert found.activity is not None
    assert "memory_utilisation" not in found.activity
    assert found.roofline is not None
    assert not found.roofline.is_lower_bound
    assert found.roofline.flops_per_byte == pytest.approx(5e14 / (0.3 * 4.815e12), rel=0.01)


def test_the_journal_has_the_peak(
    fake_nvml: Callable[..., FakeNvml], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A report that is made on another machine finds it in the line of the device."""
    nvml = fake_nvml(Scenario(cards=(t4(Constant(60.0)),)))
    profiled(nvml, tmp_path, monkeypatch, GEMM, 1e11)
    (path,) = tmp_path.glob("attempts/1/*.jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    (peak,) = (
        line["device"]["peak"]
        for line in lines
        if line["type"] == "device" and line["device"]["key"] == "gpu0"
    )
    assert peak["flops_per_s"] == pytest.approx(65e12, rel=0.01)
    assert peak["bytes_per_s"] == pytest.approx(320e9, rel=0.01)
    assert "2560 cores" in peak["source"]
