"""The plants of the benchmark of controllers, and the best that it computes for them."""

import pytest

from energy_callbacks.inference.records import Tenant
from energy_callbacks.inference.simulated.physics import running
from energy_callbacks.powercap.settings import Setting
from tests.benchmarks.controllers.plants import DrawnPlant


@pytest.mark.parametrize(("key", "model"), [("a100", "resnet50"), ("v100", "resnet50")])
@pytest.mark.parametrize(("count", "share"), [(1, 100), (4, 25)])
def test_steady_power_and_throughput_are_those_of_a_long_run(
    key: str, model: str, count: int, share: int
) -> None:
    """At a clock below the power limit, after five time constants, 20 s agree within 0.5 %."""
    plant = DrawnPlant.drawn(key, model, 1)
    tenants = (Tenant(model=model, share_pct=share, batch=32),) * count
    gpu = plant.gpu(0)
    gpu.change(Setting(knob="clock", value=1005.0))
    gpu.run(tenants)
    gpu.advance(200.0)
    passed = gpu.advance(20.0)
    powers_w, rates = plant.steady(tenants)
    at = plant.card.ladder_mhz.tolist().index(1005.0)
    assert passed.power_w == pytest.approx(powers_w[at], rel=0.005)
    assert sum(passed.samples) / 20.0 == pytest.approx(rates[at], rel=0.005)


def test_the_best_throughput_grows_with_the_cap() -> None:
    """Of three caps, each higher one allows more; a cap below all plans is an error."""
    plant = DrawnPlant.drawn("v100", "resnet50", 1)
    best = plant.best([100.0, 140.0, 180.0])
    assert best[100.0] < best[140.0] < best[180.0]
    with pytest.raises(ValueError, match="no plan of seed 1 is below"):
        plant.best([20.0])


def test_contention_changes_the_speed_of_several_tenants_alone() -> None:
    """One tenant is as without it; ten are slower or faster by nine tenths of the drawn value."""
    plant = DrawnPlant.drawn("a100", "resnet50", 1)
    one = Tenant(model="resnet50", share_pct=10, batch=32)
    for count, part in ((1, 0.0), (10, 0.9)):
        tenants = (one,) * count
        plain = running(plant.card, [(each, plant.workload) for each in tenants])
        expected = plain.rates_per_s * (1.0 + part * plant.contention)
        assert plant.at_work(tenants).rates_per_s == pytest.approx(expected)
    assert 0.01 < abs(plant.contention) < 0.1
