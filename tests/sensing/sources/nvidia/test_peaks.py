"""Peaks that are computed from a card's units, clocks and bus agree with its data sheet."""

from collections.abc import Callable
from dataclasses import replace

import pynvml
import pytest

from energy_callbacks.core.records import Device, Peak
from energy_callbacks.sensing.sources.nvidia.source import NvmlSource
from tests.fake_nvml import (
    Card,
    Constant,
    FakeNvml,
    Fault,
    Mig,
    Scenario,
    a100,
    average_1s,
    card_uuid,
    fixtures,
    h200,
    ideal,
    l4,
    pascal,
    t4,
    v100,
)

fake_nvml = fixtures.fake_nvml
Play = Callable[..., FakeNvml]
W = Constant(100.0)


def card(name: str, major: int, minor: int, units: tuple[int, float, int, float]) -> Card:
    """A card with some cores, their highest clock in MHz, and bits and MHz of the memory bus."""
    names = ("cores", "max_sm_clock_mhz", "memory_bus_bits", "memory_clock_mhz")
    return ideal(
        W,
        name=f"NVIDIA {name}",
        compute_capability=(major, minor),
        **dict(zip(names, units, strict=True)),
    )


def opened(fake_nvml: Play, card: Card, uuid: str = card_uuid(0), **scenario: object) -> Device:
    """The device that the source reports for a card."""
    nvml = fake_nvml(Scenario(cards=(card,), **scenario))
    source = NvmlSource(nvml.time, uuid)
    device = source.open()[0].device
    source.close()
    return device


H100 = card("H100 80GB HBM3", 9, 0, (16896, 1980.0, 5120, 2619.0))
RTX_4090 = card("GeForce RTX 4090", 8, 9, (16384, 3105.0, 384, 10501.0))
RTX_5090 = card("GeForce RTX 5090", 12, 0, (21760, 3090.0, 512, 14001.0))
RTX_A6000 = card("RTX A6000", 8, 6, (10752, 2100.0, 384, 8001.0))
B200 = card("B200", 10, 0, (18944, 1965.0, 8192, 3996.0))
T1000 = card("T1000", 7, 5, (896, 1395.0, 128, 5001.0))
MX450 = card("GeForce MX450", 7, 5, (896, 1575.0, 64, 5001.0))
GTX_1660 = card("GeForce GTX 1660", 7, 5, (1408, 1785.0, 192, 4001.0))


# Values of data sheets: TFLOP/s of tensor cores with dense matrices in fp16 (GeForce cards: with
# sums in float32), or of float32 for cards without tensor cores; GB/s.
@pytest.mark.parametrize(
    ("card", "tflop_per_s", "gb_per_s", "tolerance"),
    [
        (t4(W), 65.0, 320.0, 0.05),
        (v100(W), 125.0, 900.0, 0.05),
        (a100(W), 312.0, 2039.0, 0.05),
        (average_1s(W), 71.0, 936.0, 0.05),
        (RTX_4090, 165.2, 1008.0, 0.05),
        (RTX_A6000, 154.8, 768.0, 0.06),
        (l4(W), 121.0, 300.0, 0.05),
        (H100, 989.4, 3350.0, 0.05),
        (h200(W), 989.4, 4800.0, 0.05),
        (B200, 2250.0, 8000.0, 0.07),  # the data sheet is for a lower clock than the highest one
        (RTX_5090, 209.5, 1792.0, 0.05),
        (pascal(W), 9.3, 732.0, 0.05),
        (GTX_1660, 5.0, 192.0, 0.05),
        (T1000, 2.5, 160.0, 0.05),
        (MX450, 2.8, 80.0, 0.05),
    ],
    ids=lambda value: value.name if isinstance(value, Card) else "",
)
def test_data_sheets(
    fake_nvml: Play, card: Card, tflop_per_s: float, gb_per_s: float, tolerance: float
) -> None:
    """FLOP/s and bandwidth are within the tolerance of the card's data sheet."""
    found = opened(fake_nvml, card).peak
    assert found is not None
    assert found.flops_per_s == pytest.approx(tflop_per_s * 1e12, rel=tolerance)
    assert found.bytes_per_s == pytest.approx(gb_per_s * 1e9, rel=0.05)


def test_the_text_has_all_inputs(fake_nvml: Play) -> None:
    """The report can state how the peaks of a T4 are known."""
    assert opened(fake_nvml, t4(W)).peak == Peak(
        flops_per_s=1024 / 128 * 2 * 2560 * 1590e6,
        bytes_per_s=2 * 5001e6 * 256 / 8,
        source="computed from 2560 cores (tensor cores, sums in float32) with at most 1590 MHz, "
        "and from a memory bus of 256 bits with 5001 MHz, as the driver reports them",
    )


def test_a_gtx_card_has_no_tensor_cores(fake_nvml: Play) -> None:
    """A GTX 1660 has the compute capability of a T4."""
    found = opened(fake_nvml, GTX_1660).peak
    assert found is not None
    assert "1408 cores (float32, no tensor cores)" in found.source


def test_an_unknown_generation_has_a_bandwidth_only(fake_nvml: Play) -> None:
    """The FLOP per clock of a future compute capability are not guessed."""
    found = opened(fake_nvml, replace(H100, compute_capability=(13, 0))).peak
    assert found is not None
    assert found.flops_per_s is None
    assert found.bytes_per_s == 2 * 2619e6 * 5120 / 8
    assert "compute capability 13.0" in found.source


def test_nothing_is_guessed(fake_nvml: Play) -> None:
    """An old driver without the queries, failing queries, and MIG instances have no peak."""
    assert opened(fake_nvml, ideal(W)).peak is None
    code = pynvml.NVML_ERROR_UNKNOWN
    light = Fault(group="light", kind="error", start_s=0.0, value=code)
    assert opened(fake_nvml, a100(W), faults=(light,)).peak is None
    instance = Mig(uuid="MIG-10000000-0000-5000-8000-000000000000", gpu_instance=1)
    assert opened(fake_nvml, a100(W, mig_instances=(instance,)), instance.uuid).peak is None
