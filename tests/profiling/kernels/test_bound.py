"""Tests of the limit of a training, by traces, counters and FLOPs with one limit each."""

from dataclasses import replace
from typing import Any

import pytest

from energy_callbacks.core.records import Peak
from energy_callbacks.profiling.frameworks.kineto import Trace
from energy_callbacks.profiling.kernels.bound import BoundVerdict, roofline, verdict
from energy_callbacks.profiling.kernels.tally import split, tally
from tests.profiling.kernels.cuda_trace import ADD, GEMM, Work, trace

H200 = Peak(flops_per_s=989.5e12, bytes_per_s=4.8e12, source="data sheet")
T4 = Peak(flops_per_s=65e12, bytes_per_s=320e9, source="data sheet")
BUSY = (Work(name=GEMM, asked_us=0.0, start_us=10.0, duration_us=9_900.0),)
STREAMING = (Work(name=ADD, asked_us=0.0, start_us=10.0, duration_us=9_900.0),)
LAUNCHED_LATE = tuple(
    Work(name=ADD, asked_us=2_000.0 * i + 10.0, start_us=2_000.0 * i + 20.0, duration_us=500.0)
    for i in range(5)
)
HALF = (Work(name=GEMM, asked_us=5_000.0, start_us=5_000.0, duration_us=5_000.0),)


def judged(
    *work: Work,
    activity: dict[str, float] | None = None,
    flops: float | None = None,
    peak: Peak = H200,
    **given: Any,
) -> BoundVerdict:
    """Returns the verdict on a window with some work."""
    found = tally(Trace(trace(work, **given)))
    known = activity or {}
    roof = roofline(flops, 0.010, known, peak, found.devices)
    parts = split(found, None, None)
    return verdict(parts, has_device=found.has_device, activity=known, roof=roof)


def test_input() -> None:
    """A training that fetches data for half of a step is limited by its input."""
    found = judged(*HALF, data=(0.0, 5_000.0))
    assert found.bound == "input"
    assert "50 %" in found.sentence


def test_launch() -> None:
    """A training that launches for three quarters of a step is limited by launches."""
    found = judged(*LAUNCHED_LATE, busy_host=[(0.0, 10_000.0)])
    assert found.bound == "launch"
    assert "75 %" in found.sentence


def test_the_host_does_something_else() -> None:
    """If the host does something else, the limit is unknown and the sentence explains it."""
    found = judged(*HALF)
    assert found.bound == "unknown"
    assert "Python" in found.sentence


@pytest.mark.parametrize(
    ("activity", "expected"),
    [
        ({"dram_active": 0.8, "tensor_active": 0.1, "sm_active": 0.9}, "memory"),
        ({"dram_active": 0.2, "tensor_active": 0.7, "sm_active": 0.9}, "compute"),
        ({"dram_active": 0.1, "tensor_active": 0.05, "sm_active": 0.3}, "unknown"),
    ],
)
def test_counters_of_the_card(activity: dict[str, float], expected: str) -> None:
    """Counters distinguish memory and arithmetic, independent of the classes of kernels."""
    for work in (BUSY, STREAMING):
        found = judged(*work, activity=activity)
        assert found.bound == expected
        assert any("memory bandwidth in use" in one for one in found.evidence)


def test_counters_are_those_of_the_time_at_work() -> None:
    """A counter of 0.45 on a card that works for 85 % of the time is 0.53 while it works."""
    late = Work(name=GEMM, asked_us=0.0, start_us=10.0, duration_us=8_500.0)
    assert judged(late, activity={"dram_active": 0.45}).bound == "memory"
    assert judged(*BUSY, activity={"dram_active": 0.45}).bound == "compute"


@pytest.mark.parametrize(
    ("work", "activity", "expected"),
    [
        # ResNet-50 with batch normalisation on an H200: what one sees there.
        (STREAMING, {"dram_active": 0.44, "tensor_active": 0.13, "sm_active": 0.86}, "memory"),
        # Products in single precision use no tensor cores.
        (BUSY, {"dram_active": 0.2, "tensor_active": 0.0, "sm_active": 0.95}, "compute"),
        # Small kernels keep each multiprocessor waiting for something else.
        (STREAMING, {"dram_active": 0.2, "tensor_active": 0.0, "sm_active": 0.95}, "unknown"),
    ],
)
def test_counters_below_their_limits(
    work: tuple[Work, ...], activity: dict[str, float], expected: str
) -> None:
    """Below the limits of counters, classes decide; active multiprocessors alone do not."""
    assert judged(*work, activity=activity).bound == expected


@pytest.mark.parametrize(("work", "expected"), [(BUSY, "compute"), (STREAMING, "memory")])
def test_kinds_of_kernels_where_no_counter_was_read(work: tuple[Work, ...], expected: str) -> None:
    """Without counters, classes of kernels decide, and the evidence states it."""
    found = judged(*work)
    assert found.bound == expected
    assert "probably" in found.sentence
    assert any("no counter" in one for one in found.evidence)


@pytest.mark.parametrize(("tflop", "expected"), [(5.0, "compute"), (0.5, "memory")])
def test_roofline(tflop: float, expected: str) -> None:
    """10 ms at half of an H200's 4.8 TB/s move 24 GB; its ridge is at 206 FLOPs per byte."""
    found = judged(*BUSY, activity={"dram_active": 0.5}, flops=tflop * 1e12)
    assert found.bound == expected
    assert f"{tflop * 1e12 / 24e9:.3g} FLOPs per byte, the ridge is at 206" in found.evidence


def test_no_roofline_without_its_parts() -> None:
    """A roofline needs FLOPs, memory traffic, peaks and the time of a step."""
    peak, known = H200, {"dram_active": 0.5}
    assert roofline(1e12, 0.01, known, peak, 1) is not None
    assert roofline(None, 0.01, known, peak, 1) is None
    assert roofline(1e12, None, known, peak, 1) is None
    assert roofline(1e12, 0.01, {}, peak, 1) is None
    assert roofline(1e12, 0.01, known, None, 1) is None
    assert roofline(1e12, 0.01, known, replace(peak, flops_per_s=None), 1) is None


@pytest.mark.parametrize(
    ("work", "memory_utilisation", "expected"),
    [
        # 0.4 TFLOP in 10 ms are 40 TFLOP/s, at most 160 GB/s: 250 FLOPs per byte, ridge at 203.
        (STREAMING, 0.5, "compute"),
        # At most 304 GB/s: the bound of 132 FLOPs per byte is below the ridge, so kinds decide.
        (STREAMING, 0.95, "memory"),
        (BUSY, 0.95, "compute"),
    ],
)
def test_roofline_before_hopper(
    work: tuple[Work, ...], memory_utilisation: float, expected: str
) -> None:
    """The time in which memory is used bounds the traffic, and so the FLOPs per byte from below."""
    found = judged(
        *work, activity={"memory_utilisation": memory_utilisation}, flops=0.4e12, peak=T4
    )
    assert found.bound == expected
    per_byte = 40e12 / (memory_utilisation * 320e9)
    assert f"at least {per_byte:.3g} FLOPs per byte, the ridge is at 203" in found.evidence
    assert any("time with memory in use, while" in one for one in found.evidence)
    assert ("probably" in found.sentence) == (memory_utilisation == 0.95)


@pytest.mark.parametrize(("memory_utilisation", "expected"), [(0.2, "unknown"), (0.9, "memory")])
def test_little_used_memory_is_not_the_limit(memory_utilisation: float, expected: str) -> None:
    """Kernels that move bytes do not show that memory is the limit if memory is seldom used."""
    found = judged(*STREAMING, activity={"memory_utilisation": memory_utilisation})
    assert found.bound == expected


@pytest.mark.parametrize("devices", [0, -1])
def test_no_roofline_without_devices(devices: int) -> None:
    """A number of devices below 1 is refused, with the number, even if other inputs are unknown."""
    known = {"dram_active": 0.5}
    for peak in (H200, None):
        with pytest.raises(ValueError, match=f"devices must be at least 1, got {devices}; give"):
            roofline(1e12, 0.01, known, peak, devices)
