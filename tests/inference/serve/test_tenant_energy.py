"""The measured energy is divided among tenants by their activity, and nothing is lost."""

import math
from collections.abc import Callable

import pytest

from energy_callbacks.core.records import Energy
from energy_callbacks.inference.control.protocols import OperatingPoint
from energy_callbacks.inference.profile.sweeps import single
from energy_callbacks.inference.records import Tenant
from energy_callbacks.inference.serve.arrivals import ClosedLoop
from energy_callbacks.inference.serve.batch_log import Batch
from energy_callbacks.inference.serve.machine import SimulatedMachine
from energy_callbacks.inference.serve.server import Server
from energy_callbacks.inference.serve.tenant_energy import TenantEnergyMeter
from energy_callbacks.inference.simulated.presets import simulated_gpu
from tests.gpu.tenant_energy import TURN_S, Turns

A = Tenant(model="a", share_pct=50.0, batch=8)
B = Tenant(model="b", share_pct=25.0, batch=8)


def constant(power_w: float) -> Callable[[float, float], Energy]:
    """Return the energy of a constant power."""
    return lambda start_s, end_s: Energy(
        energy_j=power_w * (end_s - start_s), method="counter", coverage=1.0
    )


def batches(worker: int, tenant: Tenant, *spans: tuple[float, float]) -> list[Batch]:
    """Return batches of a tenant in these spans."""
    return [Batch(worker, tenant, 8, *span) for span in spans]


def test_by_share_and_time() -> None:
    """Of 200 W above 100 W idle, a tenant with twice the share gets twice as much."""
    meter = TenantEnergyMeter(constant(300.0), 100.0)
    work = batches(1, A, (0.0, 0.5), (0.5, 1.0)) + batches(2, B, (0.0, 1.0))
    meter.add(0.0, 1.0, work)
    found = meter.found
    assert found.idle_j == pytest.approx(100.0)
    assert found.tenants_j[A] == pytest.approx(200.0 * 2 / 3)
    assert found.tenants_j[B] == pytest.approx(200.0 / 3)
    assert found.as_json()["label"] == "attributed"


def test_turns() -> None:
    """A tenant that works alone gets all, and time without work is idle."""
    meter = TenantEnergyMeter(constant(300.0), 100.0)
    meter.add(0.0, 1.0, batches(1, A, (0.0, 0.5)) + batches(2, B, (0.5, 0.8)))
    assert meter.found.tenants_j[A] == pytest.approx(100.0)
    assert meter.found.tenants_j[B] == pytest.approx(60.0)
    assert meter.found.idle_j == pytest.approx(100.0 * 0.8 + 300.0 * 0.2)


def test_equal_tenants_are_one_kind() -> None:
    """Two processes of a kind, and windows that follow each other, are added."""
    meter = TenantEnergyMeter(constant(300.0), 100.0)
    work = batches(1, A, (0.0, 2.0)) + batches(2, A, (0.0, 2.0)) + batches(3, B, (0.0, 2.0))
    for start_s in (0.0, 1.0):
        meter.add(start_s, start_s + 1.0, work)
    assert meter.found.tenants_j[A] == pytest.approx(400.0 * 4 / 5)


def test_parts_are_the_total() -> None:
    """Whatever the power and the batches are, all parts add up to the measured energy."""

    def energy(start_s: float, end_s: float) -> Energy:
        joules = 200.0 * (end_s - start_s) + 30.0 * (math.sin(7 * end_s) - math.sin(7 * start_s))
        return Energy(energy_j=joules, method="counter", coverage=1.0)

    meter = TenantEnergyMeter(energy, 150.0)
    work = batches(1, A, (0.013, 0.4), (0.39, 1.7)) + batches(2, B, (-0.5, 0.2), (0.91, 0.93))
    meter.add(0.0, 1.0, work)
    found = meter.found
    parts_j = math.fsum([found.idle_j, *found.tenants_j.values()])
    assert parts_j == pytest.approx(found.total_j, rel=1e-12)
    assert found.total_j == energy(0.0, 1.0).energy_j
    assert min(found.tenants_j.values()) > 0.0


def test_not_attributed() -> None:
    """With a reason, or without energy of short intervals, tenants get nothing, and it is said."""

    def coarse(start_s: float, end_s: float) -> Energy:
        return Energy(energy_j=None if end_s - start_s < 0.5 else 300.0)

    for meter, reason in (
        (TenantEnergyMeter(constant(300.0), 100.0, "other processes"), "other processes"),
        (TenantEnergyMeter(coarse, 100.0), "short intervals have no energy"),
    ):
        meter.add(0.0, 1.0, batches(1, A, (0.0, 1.0)))
        found = meter.found
        assert (found.total_j, found.not_attributed_j, found.reason) == (300.0, 300.0, reason)
        assert found.tenants_j == {}
        assert found.as_json()["label"] == "not attributed"


def test_unknown_energy() -> None:
    """A window without energy is not zero: the reason is given."""
    meter = TenantEnergyMeter(lambda *_: Energy(energy_j=None), 100.0)
    meter.add(0.0, 1.0, batches(1, A, (0.0, 1.0)))
    assert meter.found.total_j == 0.0
    assert meter.found.reason == "the energy of a window is not known"


def test_models_in_turn() -> None:
    """On a simulated GPU, two models that alternate every 2 s are told apart within 1 %."""
    models = ["resnet50", "mobilenet_v2"]
    machine = SimulatedMachine(simulated_gpu("sim:h200"))
    server = Server(machine, {model: Turns(at) for at, model in enumerate(models)})
    server.apply(OperatingPoint(configuration=single(models, [50.0], [32, 64])))
    windows = [server.window(1.0) for _ in range(12)]
    start_s = windows[0].start_s
    for at, model in enumerate(models):
        starts_s = [start_s + TURN_S * turn for turn in range(at, 6, 2)]
        true_j = math.fsum(machine.pool.energy_j(one, one + TURN_S) for one in starts_s)
        true_j -= server.idle_w * TURN_S * len(starts_s)
        found = server.energies.found.tenants_j
        (given_j,) = (joules for tenant, joules in found.items() if tenant.model == model)
        assert given_j == pytest.approx(true_j, rel=0.01)


def test_models_together() -> None:
    """Two models that work at the same time share the energy of the card exactly."""
    models = ["resnet50", "mobilenet_v2"]
    machine = SimulatedMachine(simulated_gpu("sim:h200"))
    server = Server(machine, {model: ClosedLoop() for model in models})
    server.apply(OperatingPoint(configuration=single(models, [50.0], [32, 64])))
    windows = [server.window(1.0) for _ in range(3)]
    found = server.energies.found
    truth_j = machine.pool.energy_j(windows[0].start_s, windows[-1].end_s)
    assert found.total_j == pytest.approx(truth_j, rel=1e-9)
    parts_j = math.fsum([found.idle_j, *found.tenants_j.values()])
    assert parts_j == pytest.approx(truth_j, rel=1e-9)
    assert min(found.tenants_j.values()) > 100.0
