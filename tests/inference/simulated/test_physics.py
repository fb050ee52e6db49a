"""Tests of ``inference.simulated.physics``, with results that can be computed by hand."""

from dataclasses import replace

import numpy as np
import pytest

from energy_callbacks.inference.records import Mode, Tenant
from energy_callbacks.inference.simulated.physics import Running, Workload, memory_gib, running
from tests.inference.simulated.cards import BUSY, CARD, LAUNCHED, tenants


def at(work: Running, clock_mhz: float) -> tuple[float, float]:
    """Return samples per second of all tenants and W of the work at a clock."""
    index = int(np.searchsorted(CARD.ladder_mhz, clock_mhz))
    return float(work.rates_per_s[:, index].sum()), float(work.dynamic_w[index])


def run(workload: Workload, *shares: float, **options: float) -> Running:
    """Run the same workload at these shares."""
    return running(CARD, [(one, workload) for one in tenants("busy", *shares)], **options)  # type: ignore[arg-type]


def test_the_clocks_are_15_mhz_apart() -> None:
    """The ladder has all clocks from the lowest to the highest."""
    assert CARD.ladder_mhz.tolist() == [300.0 + 15.0 * step for step in range(81)]


@pytest.mark.parametrize(("share", "batch"), [(100.0, 10), (40.0, 10), (40.0, 200)])
def test_the_latency_law(share: float, batch: int) -> None:
    """A batch takes (k1 b^2 + k2 b + k3) / (r + k4) + k5 + k6 b."""
    law = replace(
        BUSY, k1=0.01, k2=3.0, k3=20.0, k4=2.0, k5=1.5, k6=0.01, host_ms=1e-6, sample_us=0.0
    )
    work = running(CARD, [(Tenant(model="busy", share_pct=share, batch=batch), law)])
    expected_ms = (0.01 * batch**2 + 3.0 * batch + 20.0) / (share + 2.0) + 1.5 + 0.01 * batch
    assert at(work, 1500.0)[0] == pytest.approx(1e3 * batch / expected_ms)


def test_kernels_follow_the_clock_and_the_host_does_not() -> None:
    """At half the clock, kernels take twice as long; a launch takes as long as before."""
    assert at(run(BUSY, 100.0), 750.0)[0] == pytest.approx(5e3, rel=1e-3)
    assert at(run(LAUNCHED, 100.0), 750.0)[0] == pytest.approx(at(run(LAUNCHED, 100.0), 1500.0)[0])


def test_tenants_share_the_memory() -> None:
    """Tenants that use more than all of its time become slower; the total is limited."""
    alone = replace(BUSY, k2=1.0, k5=9.0, sample_us=60.0)  # 6 of 10 ms
    one, three = (at(run(alone, *shares), 1500.0)[0] for shares in ([33.0], [33.0] * 3))
    assert one == pytest.approx(1e5 / (100.0 / 33.0 + 9.0), rel=1e-3)
    assert three == pytest.approx(1e6 / 60.0 / 1.1, rel=1e-3)


def test_mps_costs_a_tenth() -> None:
    """Two tenants at half the share are 10 % slower than one."""
    assert at(run(BUSY, 50.0, 50.0), 1500.0)[0] == pytest.approx(1e4 / 1.1, rel=1e-3)


def test_shares_above_100_percent() -> None:
    """Two tenants that may use all multiprocessors take turns."""
    one, two = (at(run(BUSY, *shares), 1500.0) for shares in ([100.0], [100.0, 100.0]))
    assert two[0] == pytest.approx(one[0] / 1.1, rel=1e-3)
    assert two[1] == pytest.approx(one[1] / 1.1, rel=1e-3)


def test_a_slower_memory() -> None:
    """At half the clock of the memory, a workload that always uses it is half as fast."""
    bound = replace(BUSY, k2=1.0, sample_us=100.0)
    fast, slow = (at(run(bound, 100.0, memory_mhz=mhz), 1500.0)[0] for mhz in (1000.0, 500.0))
    assert slow == pytest.approx(fast / 2.0, rel=1e-2)


def test_power() -> None:
    """It is samples per second times energy per sample, here proportional to the clock squared."""
    work = run(BUSY, 100.0)
    assert at(work, 1500.0)[1] == pytest.approx(200.0, rel=1e-3)
    assert at(work, 750.0)[1] == pytest.approx(200.0 / 2.0 / 4.0, rel=1e-2)


def test_utilisation() -> None:
    """Two tenants whose kernels run for 2 % of the time keep the GPU busy for 1 - 0.98^2."""
    assert run(LAUNCHED, 50.0, 50.0).busy[-1] == pytest.approx(1.0 - 0.98**2)


@pytest.mark.parametrize(("mode", "factor"), [("infer", 1.0), ("train", 3.0)])
def test_training(mode: Mode, factor: float) -> None:
    """It costs three times the time, energy and activations of inference."""
    work = running(CARD, [(one, BUSY) for one in tenants("busy", 100.0)], mode=mode)
    rate, power_w = at(work, 1500.0)
    assert rate == pytest.approx(1e4 / factor, rel=1e-3)
    assert power_w == pytest.approx(200.0, rel=1e-3)
    needed = memory_gib(tenants("busy", 100.0)[0], BUSY, mode)
    assert needed == pytest.approx(1.0 + factor * 1000.0 / 1024.0)
