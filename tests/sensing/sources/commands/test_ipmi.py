"""The power of a server, from texts of ``ipmitool``."""

import pytest

from energy_callbacks.core.errors import ReadingMissed, SourceUnavailable
from energy_callbacks.sensing.sources.commands.ipmi import IpmiSource
from energy_callbacks.testing import FakeClock
from tests.sensing.sources.commands.recordings import DATA, printed, refused

TEXT = (DATA / "ipmitool_dcmi.txt").read_text()


def test_it_reads_the_instantaneous_power_of_the_machine() -> None:
    """220 W now, not the 232 W of the mean or the 421 W of the maximum."""
    source = IpmiSource(FakeClock(), printed("ipmitool_dcmi.txt"))
    [channel] = source.open()
    assert (channel.device.key, channel.device.scope) == ("machine", "machine")
    assert (channel.quantity, channel.kind) == ("power", "gauge")
    [reading] = source.read()
    assert (reading.value, reading.t_s) == (220.0, 1000.0)
    source.close()


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (refused((DATA / "ipmitool_no_device.txt").read_text()), "Could not open device"),
        (("no-such-ipmitool",), "cannot run no-such-ipmitool"),
        (refused("DCMI request failed because: Invalid command (c1)"), "Invalid command"),
    ],
)
def test_a_machine_without_it_says_what_to_do(command: tuple[str, ...], reason: str) -> None:
    """The program, the kernel modules and the permission are named."""
    with pytest.raises(SourceUnavailable, match=reason) as caught:
        IpmiSource(FakeClock(), command).open()
    for cause in ("install ipmitool", "ipmi_devintf", "udev rule"):
        assert cause in caught.value.fix


def test_a_single_failure_is_a_missed_reading() -> None:
    """The next reading may succeed."""
    source = IpmiSource(FakeClock(), printed("ipmitool_dcmi.txt"))
    source.open()
    source._command = refused("timeout")
    with pytest.raises(ReadingMissed, match="timeout"):
        source.read()
