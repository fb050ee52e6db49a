"""The public fakes."""

import copy
import math
import re
from typing import Any

import pytest

from energy_callbacks import EnergyMeter, testing
from energy_callbacks.core.records import Sensor
from energy_callbacks.testing import FakeClock, InMemoryOutput, ScriptedSource


def test_scripted_gauges_and_counters_say_what_the_signal_says() -> None:
    """A gauge reads the signal, and a counter its integral, at the clock's time."""
    clock = FakeClock(start_s=10.0)
    source = ScriptedSource(clock, power_w=lambda t: 3.0 * t, energy_j=lambda t: 1.5 * t**2)
    power, counter = source.open()
    clock.advance(2.0)
    readings = source.read()
    assert [(r.channel, r.t_s, r.value) for r in readings] == [
        (power, 12.0, 36.0),
        (counter, 12.0, 216.0),
    ]


def test_a_scripted_mean_is_of_the_time_since_the_reading_before() -> None:
    """Power 3 t has the mean 33 W from 10 s to 12 s."""
    clock = FakeClock(start_s=10.0)
    source = ScriptedSource(
        clock, power_w=lambda t: 3.0 * t, energy_j=lambda t: 1.5 * t**2, kind="mean"
    )
    source.open()
    source.read()
    clock.advance(2.0)
    assert source.read()[0].value == pytest.approx(33.0)


def test_a_counter_alone_offers_no_power() -> None:
    """``kind=None`` leaves the counter."""
    source = ScriptedSource(
        FakeClock(), power_w=lambda _: 1.0, energy_j=lambda t: t, kind=None, sensor=Sensor(name="x")
    )
    assert [channel.quantity for channel in source.open()] == ["energy"]


def test_a_mean_needs_an_integral() -> None:
    """Without ``energy_j`` a mean is refused, with advice."""
    with pytest.raises(ValueError, match=r"kind='mean' needs energy_j"):
        ScriptedSource(FakeClock(), power_w=lambda _: 1.0, kind="mean")


@pytest.mark.parametrize("interval_s", [0.0, -1.0, math.nan, "1"])
def test_a_source_without_an_interval_is_refused(interval_s: Any) -> None:
    """Otherwise its thread would read without pause, and ``advance`` would never return."""
    clock = FakeClock()
    source = ScriptedSource(clock, power_w=lambda _: 1.0, interval_s=interval_s)
    with pytest.raises(ValueError, match=re.escape(f"got {interval_s!r} of ScriptedSource")):
        EnergyMeter(sources=[source], clock=clock)


def test_the_output_remembers_copies() -> None:
    """Stored rows do not change."""
    output, scalars = InMemoryOutput(), {"a": 1.0}
    output.write(scalars, 3, 0.0)
    scalars["a"] = 2.0
    output.close()
    assert output.rows == [(3, {"a": 1.0})]
    assert output.is_closed


def test_a_copied_clock_tells_the_same_time_and_has_no_jobs() -> None:
    """A copied clock does not run the jobs of the original."""
    clock, runs = FakeClock(start_s=5.0), []
    clock.every(1.0, lambda: runs.append(1), name="x")
    twin = copy.deepcopy(clock)
    twin.advance(3.0)
    assert twin.monotonic_s() == 8.0
    assert clock.monotonic_s() == 5.0
    assert runs == []


def test_the_fakes_are_public() -> None:
    """``__all__`` contains the fakes of the docstring."""
    assert set(testing.__all__) == {"FakeClock", "InMemoryOutput", "ReplaySource", "ScriptedSource"}
    assert all(hasattr(testing, name) for name in testing.__all__)
