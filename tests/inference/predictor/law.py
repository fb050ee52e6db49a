"""Windows of a simple law, which the predictor does not know."""

from collections.abc import Iterable

import numpy as np

from energy_callbacks.inference.records import Configuration, MeasuredWindow, Tenant

STATIC_W = 80.0
JOULES = {"small": 0.02, "large": 0.3}
# Time of a sample on the whole GPU at its highest clock, s.
SAMPLE_S = {"small": 5e-5, "large": 8e-4}
HOST_S = 2e-3
HIGHEST_MHZ = 1500.0


def equal(model: str, count: int, share_pct: float, batch: int, **knobs: float) -> Configuration:
    """Return a configuration of equal tenants."""
    tenant = Tenant(model=model, share_pct=share_pct, batch=batch)
    return Configuration(tenants=(tenant,) * count, **knobs)


def measured(configuration: Configuration, *, noise: float = 0.0, seed: int = 0) -> MeasuredWindow:
    """Return the window of a configuration.

    The host's time and the device's are added as squares; both rates and dynamic power follow the
    clock; tenants do not disturb each other.
    """
    random = np.random.default_rng(seed)
    clock = (configuration.sm_mhz or HIGHEST_MHZ) / HIGHEST_MHZ
    rates, load = [], 0.0
    for one in configuration.tenants:
        device_s = SAMPLE_S[one.model] * one.batch / (one.share_pct / 100) / clock
        load += SAMPLE_S[one.model] * one.batch / np.hypot(HOST_S, device_s)
        rates.append(one.batch / np.hypot(HOST_S, device_s) * (1 + noise * random.normal()))
    joules = [JOULES[one.model] for one in configuration.tenants]
    dynamic_w = float(np.dot(rates, joules)) * clock
    return MeasuredWindow(
        configuration=configuration,
        source="simulated",
        gpu_name="law",
        dataset="imagenet",
        throughput_per_s=sum(rates),
        tenant_throughputs_per_s=tuple(rates),
        power_mean_w=(STATIC_W + dynamic_w) * (1 + noise * random.normal()),
        sm_util_pct=100 * (1 - np.exp(-load)),
        mem_util_pct=50 * (1 - np.exp(-load)),
        sm_mhz_measured=clock * HIGHEST_MHZ,
    )


def grid(
    model: str = "small", batches: Iterable[int] = (1, 4, 16, 64), **knobs: float
) -> list[MeasuredWindow]:
    """Return windows over batches, and one, two and four equal tenants on the whole GPU."""
    return [
        measured(equal(model, count, 100 / count, batch, **knobs))
        for count in (1, 2, 4)
        for batch in batches
    ]
