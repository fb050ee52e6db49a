"""A simulated GPU as a plant."""

from dataclasses import replace

import pytest

from energy_callbacks.inference.control.protocols import OperatingPoint
from energy_callbacks.inference.control.simulated_plant import LOAD_S, SimulatedPlant
from energy_callbacks.inference.records import Configuration, Tenant
from tests.inference.simulated import cards


def _point(
    *shares: float, batch: int = 100, duty: float = 1.0, **settings: float
) -> OperatingPoint:
    tenants = cards.tenants("busy", *shares, batch=batch)
    return OperatingPoint(configuration=Configuration(tenants=tenants, **settings), duty=duty)


def _loaded(plant: SimulatedPlant, point: OperatingPoint) -> SimulatedPlant:
    plant.apply(point)
    plant.window(LOAD_S + 1.0)
    return plant


def test_processes_load_before_they_work() -> None:
    """3 s without a sample at static power, in windows that are not steady; then 10,000/s."""
    plant = SimulatedPlant(cards.gpu())
    plant.apply(_point(100.0))
    found = [plant.window(1.0) for _ in range(5)]
    assert [one.is_steady for one in found] == [False] * 3 + [True] * 2
    assert [one.throughput_per_s for one in found[:3]] == [0.0] * 3
    assert found[0].power_mean_w == pytest.approx(60.0, rel=0.03)
    assert found[4].throughput_per_s == pytest.approx(10_000.0, rel=0.02)


def test_another_batch_needs_no_new_process() -> None:
    """The window after a change of the batch is steady; with another share it is not."""
    plant = _loaded(SimulatedPlant(cards.gpu()), _point(50.0))
    plant.apply(_point(50.0, batch=50))
    assert plant.window(1.0).is_steady
    plant.apply(_point(40.0, batch=50))
    assert not plant.window(1.0).is_steady


def test_processes_that_end_leave_the_others_working() -> None:
    """One of two equal tenants ends: the other one goes on at once."""
    plant = _loaded(SimulatedPlant(cards.gpu()), _point(50.0, 50.0))
    plant.apply(_point(50.0))
    assert plant.window(1.0).is_steady


def test_duty_is_the_share_of_time_with_work() -> None:
    """At a duty of 30 %, throughput is 30 %, and power is static power and 30 % of the rest."""
    plant = _loaded(SimulatedPlant(cards.gpu()), _point(100.0))
    whole = plant.window(5.0)
    plant.apply(_point(100.0, duty=0.3))
    part = plant.window(5.0)
    assert part.throughput_per_s == pytest.approx(0.3 * whole.throughput_per_s, rel=0.02)
    expected_w = 60.0 + 0.3 * (whole.power_mean_w - 60.0)
    assert part.power_mean_w == pytest.approx(expected_w, rel=0.03)
    assert part.is_steady


def test_settings_reach_the_gpu_and_return() -> None:
    """A clock and a limit are set; without them, the clock is free and the limit the default."""
    gpu = cards.gpu()
    plant = SimulatedPlant(gpu)
    plant.apply(_point(100.0, sm_mhz=900.0, power_limit_w=150.0))
    assert gpu.highest_mhz == 900.0
    assert gpu.range("limit").present == 150.0
    plant.apply(_point(100.0))
    assert gpu.highest_mhz == 1500.0
    assert gpu.range("limit").present == 400.0


def test_the_counter_gives_the_true_mean_and_a_sensor_its_last_second() -> None:
    """A boxcar sensor has the mean of the window of 1 s, with its noise of 0.5 %."""
    boxcar = replace(cards.CARD, sensor="boxcar")
    for meter, tolerance in (("counter", 1e-3), ("sensor", 0.02)):
        gpu = cards.gpu(boxcar)
        plant = _loaded(SimulatedPlant(gpu, meter=meter), _point(100.0))  # type: ignore[arg-type]
        plant.apply(_point(100.0, sm_mhz=600.0))
        before_j = gpu.energy_j
        window = plant.window(1.0)
        assert window.power_mean_w == pytest.approx(gpu.energy_j - before_j, rel=tolerance)


def test_windows_have_the_throughput_of_each_tenant_and_a_latency() -> None:
    """Two equal tenants have half of the throughput each, and batches of 100 take 1e5 / rate ms."""
    window = _loaded(SimulatedPlant(cards.gpu()), _point(50.0, 50.0)).window(2.0)
    each = window.tenant_throughputs_per_s
    assert len(each) == 2
    assert sum(each) == pytest.approx(window.throughput_per_s)
    assert window.latency_p95_ms == pytest.approx(1e5 / each[0], rel=0.05)


@pytest.mark.parametrize(
    ("point", "text"),
    [
        (_point(100.0, sm_mhz=900.0), "clock cannot be changed"),
        (_point(100.0, power_limit_w=150.0), "limit cannot be changed"),
        (_point(100.0, duty=0.5), "duty cannot be changed"),
        (_point(100.0, duty=0.0), "must be above 0"),
        (replace(_point(100.0), budget_w=80.0), "budget cannot be changed"),
    ],
)
def test_what_cannot_be_changed_is_refused(point: OperatingPoint, text: str) -> None:
    """A plant with partitions alone refuses clocks, limits and duties."""
    plant = SimulatedPlant(cards.gpu(), can=frozenset({"partition"}))
    assert dict(plant.abilities.ranges) == {}
    with pytest.raises(ValueError, match=text):
        plant.apply(point)


def test_an_idle_gpu_is_a_plant() -> None:
    """Without tenants, there is idle power and no throughput."""
    window = SimulatedPlant(cards.gpu()).window(1.0)
    assert window.power_mean_w == pytest.approx(20.0, rel=0.02)
    assert window.throughput_per_s == 0.0
    assert window.latency_p95_ms is None


def test_tenants_of_several_models_share_a_plant() -> None:
    """Windows have one throughput per tenant, in their order."""
    mixed = (
        Tenant(model="busy", share_pct=50.0, batch=100),
        Tenant(model="launched", share_pct=50.0, batch=100),
    )
    point = OperatingPoint(configuration=Configuration(tenants=mixed))
    window = _loaded(SimulatedPlant(cards.gpu()), point).window(1.0)
    assert len(window.tenant_throughputs_per_s) == 2
    assert all(one > 0.0 for one in window.tenant_throughputs_per_s)
