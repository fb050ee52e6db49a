import pytest

from energy_callbacks.core.errors import SourceLost
from energy_callbacks.core.records import Channel, Device, Reading
from energy_callbacks.sensing.sources.replay import ReplaySource
from energy_callbacks.testing import FakeClock

GPU = Device(key="gpu0", kind="gpu", scope="gpu", name="recorded GPU")
POWER = Channel(device=GPU, quantity="power", kind="gauge")
MEMORY = Channel(device=GPU, quantity="memory_used", kind="gauge")
READINGS = [Reading(POWER, 1000.0 + i / 10.0, 100.0 + i) for i in range(20)]


def test_readings_come_when_their_time_has_come() -> None:
    """Each reading is returned once, by the first read at or after its time."""
    clock = FakeClock(start_s=1000.0)
    source = ReplaySource(clock, [POWER], READINGS)
    assert source.open() == (POWER,)

    assert list(source.read()) == READINGS[:1]
    clock.advance(0.55)
    assert list(source.read()) == READINGS[1:6]
    assert list(source.read()) == []
    clock.advance(100.0)
    assert list(source.read()) == READINGS[6:]


def test_any_order_of_recording() -> None:
    """Readings in any order are replayed in order of time."""
    clock = FakeClock(start_s=1100.0)
    source = ReplaySource(clock, [POWER], reversed(READINGS), interval_s=0.2, name="log")
    source.open()

    assert list(source.read()) == READINGS
    assert (source.name, source.interval_s) == ("log", 0.2)


def test_reading_of_another_channel() -> None:
    """A reading whose channel is not offered is refused at construction, by name."""
    with pytest.raises(ValueError, match="memory_used of gpu0"):
        ReplaySource(FakeClock(), [POWER], [Reading(MEMORY, 1.0, 2.0)])


def test_closed_source() -> None:
    """A source that is not open raises; opened again it continues."""
    clock = FakeClock(start_s=1000.0)
    source = ReplaySource(clock, [POWER], READINGS)
    with pytest.raises(SourceLost, match="not open"):
        source.read()
    source.open()
    source.read()
    source.close()
    source.close()
    source.open()
    clock.advance(0.1)

    assert list(source.read()) == READINGS[1:2]
