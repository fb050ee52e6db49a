"""Cards whose sensors behave as measured or published; each takes the signal to play.

Sources: H200 our own measurements (``facts/h200.md``); the others Yang, Adamek and Armour,
"Part-time power measurements" (SC'24, arXiv 2312.02741), table of update periods and windows.
"""

from collections.abc import Callable, Mapping
from typing import Any

from tests.fake_nvml.scenario import Card, Group, Mig
from tests.fake_nvml.sensor import Buffer, Latency, Sensor
from tests.fake_nvml.signals import Constant, Signal

H200_LATENCY: Mapping[Group, Latency] = {
    "power": Latency(median_s=1e-6, p99_s=10e-6),
    "instant": Latency(median_s=3e-6, p99_s=18e-6),
    "average": Latency(median_s=3e-6, p99_s=18e-6),
    "counter": Latency(median_s=2.6e-3, p99_s=20e-3),
    "samples": Latency(median_s=200e-6, p99_s=450e-6),
    "light": Latency(median_s=1e-6, p99_s=8e-6),
    "memory": Latency(median_s=5e-6, p99_s=20e-6),
    "processes": Latency(median_s=28e-6, p99_s=120e-6),
    "gpm": Latency(median_s=200e-6, p99_s=450e-6),
}


# Assumed: no call of these cards has been timed. The energy counter is not answered by the card's
# firmware, as on an H200, but by the driver, as power is.
CHEAP_LATENCY: Mapping[Group, Latency] = {"counter": Latency(median_s=10e-6, p99_s=60e-6)}


def h200(signal: Signal, **changes: Any) -> Card:
    """H200: a 20 ms sample buffer, a slow counter call, an instant field that sees 25 of 100 ms."""
    sensor = Sensor(
        response_s=0.015,
        lag_s=0.005,
        memory_share=0.15,
        buffer=Buffer(jitter_s=0.003),
    )
    return _card(
        changes,
        signal=signal,
        sensor=sensor,
        name="NVIDIA H200",
        cores=16896,
        memory_bus_bits=6016,
        memory_clock_mhz=3201.0,
        memory_total_bytes=141 * 2**30,
        mig_capable=True,
        latency=H200_LATENCY,
    )


def a100(signal: Signal, **changes: Any) -> Card:
    """A100: every power reading sees 25 of each 100 ms; counter each 100 ms, no buffer."""
    return _card(
        changes,
        signal=signal,
        sensor=Sensor(usage_window_s=0.025, average_window_s=None),
        name="NVIDIA A100-SXM4-80GB",
        cores=6912,
        memory_bus_bits=5120,
        max_sm_clock_mhz=1410.0,
        memory_clock_mhz=1593.0,
        latency=CHEAP_LATENCY,
        architecture=7,
        compute_capability=(8, 0),
        mig_capable=True,
        **_limits(100.0, 400.0),
    )


def v100(signal: Signal, **changes: Any) -> Card:
    """V100: every power reading sees 10 of each 20 ms; counter each 20 ms, no buffer."""
    sensor = Sensor(
        period_s=0.02,
        window_s=0.01,
        usage_window_s=0.01,
        average_window_s=None,
        counter_period_s=0.02,
    )
    return _card(
        changes,
        signal=signal,
        sensor=sensor,
        name="Tesla V100-SXM2-32GB",
        cores=5120,
        memory_bus_bits=4096,
        max_sm_clock_mhz=1530.0,
        memory_clock_mhz=877.0,
        latency=CHEAP_LATENCY,
        memory_total_bytes=32 * 2**30,
        architecture=5,
        compute_capability=(7, 0),
        **_limits(150.0, 300.0),
    )


def pascal(signal: Signal, **changes: Any) -> Card:
    """P100: nothing but the power reading, 10 of each 20 ms; no energy counter before Volta."""
    sensor = Sensor(
        period_s=0.02,
        window_s=0.01,
        usage_window_s=0.01,
        average_window_s=None,
        instant_field=False,
        counter_period_s=None,
    )
    return _card(
        changes,
        signal=signal,
        sensor=sensor,
        name="Tesla P100-PCIE-16GB",
        cores=3584,
        memory_bus_bits=4096,
        max_sm_clock_mhz=1328.0,
        memory_clock_mhz=715.0,
        memory_total_bytes=16 * 2**30,
        architecture=4,
        compute_capability=(6, 0),
        **_limits(125.0, 250.0),
    )


def average_1s(signal: Signal, **changes: Any) -> Card:
    """RTX 3090 with an old driver: only means of the last second, each 100 ms, and the counter."""
    return _card(
        changes,
        signal=signal,
        sensor=Sensor(instant_field=False),
        name="NVIDIA GeForce RTX 3090",
        cores=10496,
        memory_bus_bits=384,
        max_sm_clock_mhz=2100.0,
        memory_clock_mhz=9751.0,
        latency=CHEAP_LATENCY,
        memory_total_bytes=24 * 2**30,
        architecture=7,
        compute_capability=(8, 6),
        **_limits(100.0, 350.0),
    )


def t4(signal: Signal, **changes: Any) -> Card:
    """T4: means of 100 ms, each 100 ms; the counter each 100 ms, no buffer."""
    return _card(
        changes,
        signal=signal,
        sensor=Sensor(usage_window_s=0.1, average_window_s=None),
        name="Tesla T4",
        cores=2560,
        memory_bus_bits=256,
        max_sm_clock_mhz=1590.0,
        memory_clock_mhz=5001.0,
        latency=CHEAP_LATENCY,
        memory_total_bytes=16 * 2**30,
        architecture=6,
        compute_capability=(7, 5),
        **_limits(60.0, 70.0),
    )


def l4(signal: Signal, **changes: Any) -> Card:
    """L4: means of the last second and of 100 ms, each 100 ms, and the counter."""
    return _card(
        changes,
        signal=signal,
        sensor=Sensor(window_s=0.1),
        name="NVIDIA L4",
        cores=7424,
        memory_bus_bits=192,
        max_sm_clock_mhz=2040.0,
        memory_clock_mhz=6251.0,
        latency=CHEAP_LATENCY,
        memory_total_bytes=24 * 2**30,
        architecture=8,
        compute_capability=(8, 9),
        **_limits(40.0, 72.0),
    )


def ideal(signal: Signal, **changes: Any) -> Card:
    """A card without sensor errors: every reading is the truth at the moment of the call."""
    sensor = Sensor(period_s=0.0, window_s=0.0, usage_window_s=0.0, counter_period_s=0.0)
    return _card(changes, signal=signal, sensor=sensor, name="Ideal GPU")


def numbered(
    preset: Callable[..., Card], index: int, *, name: str = "NVIDIA H200", parts: int = 0
) -> Card:
    """A card that draws 100 W more than the one before; its UUID begins with its index.

    Args:
        preset: makes the card.
        index: number of the card, from 0 on.
        name: its name.
        parts: number of its MIG instances.
    """
    instances = tuple(
        Mig(uuid=f"MIG-{index}{part}000000-0000-5000-8000-000000000000", gpu_instance=part)
        for part in range(1, parts + 1)
    )
    return preset(
        Constant(100.0 * (index + 1)),
        name=name,
        uuid=f"GPU-{index}0000000-0000-4000-8000-000000000000",
        mig_instances=instances,
    )


def _card(changes: dict[str, Any], **settings: Any) -> Card:
    return Card(**{**settings, **changes})


def _limits(min_w: float, max_w: float) -> dict[str, float]:
    return {"min_limit_w": min_w, "max_limit_w": max_w, "limit_w": max_w, "default_limit_w": max_w}
