"""A simulated GPU with simple constants."""

from dataclasses import replace

from energy_callbacks.inference.records import Configuration, MeasuredWindow, Tenant
from energy_callbacks.inference.simulated.failures import Failures
from energy_callbacks.inference.simulated.gpu import SimulatedGpu
from energy_callbacks.inference.simulated.physics import Card, Workload

UUID = "SIM-test"
CARD = Card(
    name="Test (simulated)",
    clocks_mhz=(300.0, 1500.0),
    memory_clocks_mhz=(500.0, 1000.0),
    limits_w=(100.0, 400.0, 400.0),
    memory_gib=10.0,
    idle_w=20.0,
    static_w=((300.0, 40.0), (1500.0, 60.0)),
    power_exponent=3.0,
    lowest_energy=0.1,
    sharpness=40.0,
    mps_overhead=0.1,
    held_w=((100.0, 100.0), (400.0, 400.0)),
    held_mhz=300.0,
    kelvin_per_w=0.1,
    leakage_per_k=0.0,
    sensor="instant",
)
# 10 ms of kernels for 100 samples at a share of 100 %: 10,000 samples per second, 200 W.
BUSY = Workload(
    k2=10.0,
    k3=0.0,
    k4=0.0,
    k5=0.0,
    host_ms=0.1,
    sample_us=10.0,
    batch_us=0.0,
    sample_mj=20.0,
    batch_mj=0.0,
    memory_gib=1.0,
    sample_mib=10.0,
)
# The host launches a batch in 10 ms, which keeps the GPU busy for a hundredth of this.
LAUNCHED = replace(BUSY, k2=0.1, host_ms=10.0, sample_us=0.1)
PAUSING = replace(BUSY, pause_us=50.0)
WORKLOADS = {"busy": BUSY, "launched": LAUNCHED, "pausing": PAUSING}


def tenants(model: str, *shares: float, batch: int = 100) -> tuple[Tenant, ...]:
    """Return tenants that run the same model."""
    return tuple(Tenant(model=model, share_pct=share, batch=batch) for share in shares)


def gpu(card: Card = CARD, seed: int = 0, **failures: object) -> SimulatedGpu:
    """Return a GPU of these constants."""
    return SimulatedGpu(
        card,
        WORKLOADS,
        uuid=UUID,
        seed=seed,
        failures=Failures(**failures),  # type: ignore[arg-type]
    )


def measured(one: SimulatedGpu, model: str = "busy", **settings: float) -> MeasuredWindow:
    """Measure one tenant for 2 s after 1 s."""
    configuration = Configuration(tenants=tenants(model, 100.0), **settings)  # type: ignore[arg-type]
    return one.measure(configuration, window_s=2.0, warmup_s=1.0)
