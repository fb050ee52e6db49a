"""Tests of ``SimulatedSource``."""

import pytest

from energy_callbacks.core.errors import SourceLost
from energy_callbacks.inference.simulated.source import SimulatedSource
from energy_callbacks.testing import FakeClock
from tests.inference.simulated.cards import gpu, tenants


def test_the_gpu_follows_the_clock() -> None:
    """Readings belong to the time of the clock, and the energy counter to the whole time."""
    clock, one = FakeClock(), gpu()
    source = SimulatedSource(one, clock)
    power, energy = source.open()
    one.run(tenants("busy", 100.0))
    for _ in range(8):
        clock.advance(0.25)
        last_w, last_j = source.read()
    assert one.t_s == 2.0
    assert (last_w.channel, last_j.channel) == (power, energy)
    assert last_w.t_s == clock.monotonic_s()
    assert last_w.value == pytest.approx(260.0, rel=0.03)
    assert last_j.value == pytest.approx(2.0 * 260.0, rel=0.02)
    assert "simulated" in power.device.name


def test_a_gpu_that_is_lost() -> None:
    """The source is lost, as if the driver did not answer."""
    clock = FakeClock()
    source = SimulatedSource(gpu(lost_at_s=1.0), clock)
    clock.advance(2.0)
    with pytest.raises(SourceLost, match="the GPU is lost"):
        source.read()
