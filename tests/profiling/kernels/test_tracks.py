"""Tests of sensor readings in traces: clock, valid events, and readability by other programs."""

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.profiling.kernels import KernelProfiler
from tests.fake_nvml import Scenario, Square, a100, fixtures, h200
from tests.fake_nvml.test_fake_card import CardClock
from tests.profiling.kernels.cuda_trace import (
    ADD,
    BASE_NS,
    GEMM,
    UPLOAD,
    ZERO_US,
    Work,
    trace,
)
from tests.profiling.kernels.lab import FakeRecorder
from tests.profiling.kernels.trace_format import check

fake_nvml = fixtures.fake_nvml
SQUARE = Square(low_w=100.0, high_w=600.0, period_s=0.5, duty=0.5, phase_s=0.0)
WORK = (
    Work(
        name=UPLOAD,
        asked_us=0.0,
        start_us=100.0,
        duration_us=1_000.0,
        category="gpu_memcpy",
        stream=9,
    ),
    Work(name=GEMM, asked_us=10.0, start_us=1_100.0, duration_us=4_000.0),
    Work(name=ADD, asked_us=20.0, start_us=5_100.0, duration_us=2_000.0, part="backward"),
)


class WaitingClock(CardClock):
    """A clock whose ``sleep`` lets the sensors continue."""

    def sleep(self, duration_s: float) -> None:
        """See ``FakeClock.advance``."""
        self.advance(duration_s)


def window(
    fake_nvml: Any, folder: Path, patch: pytest.MonkeyPatch, card: Callable[..., Any]
) -> tuple[dict[str, Any], Any, CardClock]:
    """Returns the trace of a window of 3 s on a card whose power is a square wave."""
    nvml = fake_nvml(Scenario(cards=(card(SQUARE),)))
    clock = WaitingClock(nvml.time)

    def document() -> dict[str, Any]:
        """Returns a trace with Unix time as Kineto writes it."""
        known = trace(WORK)
        moved_us = (clock.unix_s() - BASE_NS / 1e9) * 1e6 - ZERO_US
        for line in known["traceEvents"]:
            line["ts"] += moved_us
        return known

    FakeRecorder(document=document).install(patch)
    profiler = KernelProfiler(windows_after=(100,), warm_up_steps=1, active_steps=29)
    config = EnergyConfig(report_dir=folder, devices=[0])
    with (
        EnergyMeter(config=config, clock=clock, profilers=[profiler]) as meter,
        meter.phase("train"),
    ):
        for _ in range(400):
            clock.advance(0.1)
            meter.step()
    kernels = meter.report().profile.kernels  # type: ignore[union-attr]
    with gzip.open(folder / kernels.traces[0], "rt") as file:  # type: ignore[union-attr]
        return json.load(file), nvml, clock


def counter(document: dict[str, Any], name: str, unit: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns Unix times in seconds and values of a track."""
    lines = [one for one in document["traceEvents"] if one["name"] == f"{name} ({unit})"]
    base_s = document["baseTimeNanoseconds"] / 1e9
    moments = np.array([one["ts"] for one in lines]) / 1e6 + base_s
    return moments, np.array([one["args"][unit] for one in lines])


@pytest.mark.parametrize("card", [h200, a100], ids=lambda card: card.__name__)
def test_power_lies_where_it_was_drawn(
    fake_nvml: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, card: Callable[..., Any]
) -> None:
    """The power track fits the true square wave best with a shift of less than 5 ms."""
    document, _, clock = window(fake_nvml, tmp_path, monkeypatch, card)
    unix_s, power_w = counter(document, "gpu0 power", "W")
    zero_s = clock.unix_s() - clock.monotonic_s()
    assert unix_s[-1] - unix_s[0] > 5.0
    moments = np.arange(unix_s[0], unix_s[-1], 0.0005)
    told_w = power_w[np.searchsorted(unix_s, moments, side="right") - 1]
    shifts_s = np.arange(-0.06, 0.06, 0.0005)
    off = [np.mean((told_w - _square(moments - zero_s - shift)) ** 2) for shift in shifts_s]
    assert abs(shifts_s[int(np.argmin(off))]) <= 0.005


def _square(t_s: np.ndarray) -> np.ndarray:
    """Returns the true power."""
    is_high = (t_s / SQUARE.period_s) % 1.0 < SQUARE.duty
    return np.where(is_high, SQUARE.high_w, SQUARE.low_w)


def test_all_tracks(fake_nvml: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All quantities have a track, and energy rises by power times time."""
    document, *_ = window(fake_nvml, tmp_path, monkeypatch, h200)
    names = {one["name"] for one in document["traceEvents"] if one["ph"] == "C"}
    for name in ("power (W)", "energy (J)", "SM clock (MHz)", "temperature (°C)", "memory (GiB)"):
        assert f"gpu0 {name}" in names
    assert "gpu0 throttled so far (s)" in names
    t_s, energy_j = counter(document, "gpu0 energy", "J")
    mean_w = (SQUARE.low_w + SQUARE.high_w) / 2.0
    assert energy_j[0] == 0.0
    assert (np.diff(energy_j) >= 0.0).all()
    assert energy_j[-1] == pytest.approx(mean_w * (t_s[-1] - t_s[0]), rel=0.05)


def test_the_trace_is_valid(
    fake_nvml: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trace is valid by the documented format; the check finds an invalid event."""
    document, *_ = window(fake_nvml, tmp_path, monkeypatch, h200)
    check(document)
    counters = [one for one in document["traceEvents"] if one["ph"] == "C"]
    counters[0]["args"] = {"W": "300"}
    with pytest.raises(AssertionError):
        check(document)


_READ = """
import sys, json, logging
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, include_last_profiler_step=True)
kinds, kernels = analysis.get_gpu_kernel_breakdown(visualize=False, num_kernels=10)
idle = analysis.get_temporal_breakdown(visualize=False)
print(json.dumps([kinds.to_dict("records"), kernels.to_dict("records"), idle.to_dict("records")]))
"""


def test_holistic_trace_analysis_reads_the_kernels(
    fake_nvml: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HolisticTraceAnalysis finds the times of kernels and copies that the trace has.

    It rounds times to whole microseconds.
    """
    # It may live in an environment of its own.
    reader = os.environ.get("HTA_PYTHON", sys.executable)
    if subprocess.run([reader, "-c", "import hta"], capture_output=True, check=False).returncode:
        pytest.skip("HolisticTraceAnalysis is not installed")
    window(fake_nvml, tmp_path, monkeypatch, h200)
    path = next((tmp_path / "profile").glob("*.json.gz"))
    done = subprocess.run(
        [reader, "-c", _READ, str(path)], capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr
    _, kernels, _ = json.loads(done.stdout.splitlines()[-1])
    told = {row["name"]: row["sum (us)"] for row in kernels}
    assert told[GEMM] == pytest.approx(12_000.0, abs=5.0)
    assert told[ADD] == pytest.approx(6_000.0, abs=5.0)
    assert told[UPLOAD] == pytest.approx(3_000.0, abs=5.0)
