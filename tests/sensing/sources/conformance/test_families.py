"""Every family of sensors in files opens, leaves out and reports its files in the same way."""

import errno
import os
from pathlib import Path

import pytest

from energy_callbacks.core.errors import ReadingMissed, SourceLost, SourceUnavailable
from energy_callbacks.sensing.sources.sysfs.family import whole_number
from tests.sensing.sources.conformance.case import LOAD, FamilyCase, forbid, quantities
from tests.sensing.sources.conformance.cases import CASES

METERING = {"power", "energy"}
FAMILY_CASES = [case for case in CASES if isinstance(case, FamilyCase)]
every_family = pytest.mark.parametrize("case", FAMILY_CASES, ids=lambda case: case.name)


@every_family
def test_an_empty_machine_has_no_device(case, tmp_path):
    """Without the files of a family there is no device, and no error."""
    assert case.found(tmp_path) == []


@every_family
def test_sensors_are_files_of_the_device(case, play):
    """The report shows the path of each file, and each fact has a source."""
    lab = play(case)
    for channel in lab.source.open():
        is_file = Path(channel.sensor.name).is_relative_to(lab.place)
        assert is_file or channel.sensor.name == "amdsmi_get_energy_count"
        assert channel.sensor.citation
    assert all(case.fixes.values())


@every_family
def test_two_devices_on_the_bus_have_two_identities(case, play):
    """UUID and PCI address tell them apart; of several meters that may overlap, none is read."""
    lab = play(case, LOAD, LOAD)
    found = case.found(lab.running.tree.root)
    assert len(found) == (0 if "two devices" in case.impossible else 2)
    on_bus = [(one.device.uuid, one.pci) for one in found if one.pci]
    assert len(set(on_bus)) == len(on_bus)


@every_family
def test_values_that_mean_no_value(case, play):
    """Each value that the table states as missing gives no reading of its quantity."""
    lab = play(case)
    channels = quantities(lab.source.open())
    for row in case.family.sensors:
        if row.parse is not whole_number or row.quantity not in channels:
            continue
        file = Path(channels[row.quantity].sensor.name).relative_to(lab.running.tree.root)
        for missing in row.missing:
            right = (lab.running.tree.root / file).read_bytes()
            lab.running.tree.set(str(file), f"{missing:.0f}")
            other = quantities(_opened_or_none(lab)).get(row.quantity)
            assert other is None or other.sensor.name != channels[row.quantity].sensor.name
            lab.running.tree.set(str(file), right)
            assert row.quantity in quantities(_opened_or_none(lab))


def _values(lab, duration_s):
    """Let time pass, and return what one read says, by quantity."""
    lab.clock.advance(duration_s)
    lab.running.update()
    return {one.channel.quantity: one.value for one in lab.source.read()}


def _opened_or_none(lab):
    """Return the channels of the device; empty if it is refused."""
    try:
        return lab.source.open()
    except SourceUnavailable:
        return ()


@every_family
def test_a_missing_gauge_is_left_out(case, play):
    """Files of other quantities may be missing: power and energy are read without them."""
    lab = play(case)
    channels = quantities(lab.source.open())
    lab.source.close()
    for quantity in channels.keys() - METERING:
        Path(channels[quantity].sensor.name).unlink()
    assert METERING & quantities(lab.source.open()).keys()
    assert METERING & _values(lab, 1.6).keys()


@every_family
def test_permission_denied_for_a_gauge(case, play, monkeypatch):
    """Quantities whose files must not be read are named in a note; all others are read."""
    lab = play(case)
    names = {
        quantity: channel.sensor.name
        for quantity, channel in quantities(lab.source.open()).items()
        if quantity not in METERING
    }
    forbid(monkeypatch, {Path(name).resolve() for name in names.values()})
    channels = quantities(lab.source.open())
    assert METERING & channels.keys()
    notes = " ".join(next(iter(channels.values())).device.notes)
    # A quantity with several files is read from another one.
    assert all(name in notes for quantity, name in names.items() if quantity not in channels)
    assert channels.keys() - METERING < names.keys() or not names


@every_family
def test_files_of_a_device_that_is_gone(case, play, monkeypatch):
    """The kernel's error for files of a removed device means that the device is gone."""
    lab = play(case)
    lab.source.open()

    def gone(*_):
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))

    monkeypatch.setattr(os, "pread", gone)
    with pytest.raises(SourceLost, match="is gone"):
        lab.source.read()


@every_family
def test_other_errors_are_missed_readings(case, play, monkeypatch):
    """An error of the driver is a missed reading; the next call may succeed."""
    lab = play(case)
    lab.source.open()
    lab.source.read()
    lab.clock.advance(1.0)
    with monkeypatch.context() as patch:

        def fail(*_):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        patch.setattr(os, "pread", fail)
        with pytest.raises(ReadingMissed, match="Input/output error"):
            lab.source.read()
    assert METERING & _values(lab, 1.0).keys()
