from energy_callbacks.accounting.journal.stale_sensors import StaleSensors
from energy_callbacks.core.records import Channel, Device, Reading
from energy_callbacks.sensing.timeline import Timeline

GPU = Device(key="gpu0", kind="gpu", scope="gpu", name="GPU")
POWER = Channel(device=GPU, quantity="power", kind="gauge")
ENERGY = Channel(device=GPU, quantity="energy", kind="counter")
MEMORY = Channel(device=GPU, quantity="memory_used", kind="gauge")
START_S = 1000.0


class Machine:
    """A card with one reading per second from the start of an attempt."""

    def __init__(self) -> None:
        self.timeline = Timeline()
        self.timeline.register([POWER, ENERGY, MEMORY])
        self.silences = StaleSensors(self.timeline, START_S)
        self.now_s = START_S

    def hear(self, duration_s: int, *channels: Channel) -> list[str]:
        """Read only these channels for some seconds; returns the messages."""
        told = []
        for _ in range(duration_s):
            self.now_s += 1.0
            self.timeline.extend([Reading(channel, self.now_s, 1.0) for channel in channels])
            told += self.silences.news()
        return told


def test_all_is_heard() -> None:
    """If all quantities are read, there is no message."""
    assert Machine().hear(60, POWER, ENERGY, MEMORY) == []


def test_one_falls_silent() -> None:
    """A counter without readings for more than ten seconds is reported once, with the time."""
    machine = Machine()
    machine.hear(30, POWER, ENERGY, MEMORY)

    assert machine.hear(10, POWER, MEMORY) == []
    assert machine.hear(300, POWER, MEMORY) == [
        "gpu0: no readings of energy since 30 s after the start; its other sensors respond."
    ]


def test_two_fall_silent() -> None:
    """Each quantity is reported with its name."""
    machine = Machine()
    machine.hear(5, POWER, ENERGY, MEMORY)

    told = machine.hear(30, POWER)
    assert len(told) == 2
    assert any("no readings of memory used since 5 s" in message for message in told)


def test_whole_device_falls_silent() -> None:
    """A device without any reading for a minute is not reported."""
    machine = Machine()
    machine.hear(30, POWER, ENERGY, MEMORY)
    machine.hear(60)

    assert machine.hear(5, POWER) == []
    assert machine.hear(30, POWER, ENERGY, MEMORY) == []


def test_what_never_spoke_is_not_missed() -> None:
    """A quantity that was never read is not reported."""
    assert Machine().hear(60, POWER, MEMORY) == []


def test_sensor_that_comes_and_goes() -> None:
    """Each quantity is reported three times at most."""
    machine = Machine()
    told = []
    for _ in range(10):
        told += machine.hear(15, POWER, ENERGY)
        told += machine.hear(15, POWER)

    assert len(told) == 3
