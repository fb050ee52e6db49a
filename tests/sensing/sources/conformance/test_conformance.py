"""Every family of sensors in files behaves in the same way, whatever happens to its files."""

import errno
import os
import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from energy_callbacks.core.errors import ReadingMissed, SourceLost, SourceUnavailable
from energy_callbacks.sensing.sources.sysfs import families
from energy_callbacks.sensing.sources.sysfs.family import whole_number
from tests.fake_nvml.signals import Constant
from tests.sensing.sources.conformance import acme
from tests.sensing.sources.conformance.case import Case, Lab, Sampled, found_devices, quantities
from tests.sensing.sources.conformance.cases import CASES
from tests.sensing.sources.trees import Tree

METERING = {"power", "energy"}
HIDDEN = [(case, name) for case in CASES for name in case.no_values]


def _ids(value):
    return value.name if isinstance(value, Case) else value


every_case = pytest.mark.parametrize("case", CASES, ids=_ids)
every_counter = pytest.mark.parametrize("case", [c for c in CASES if c.has_energy], ids=_ids)
every_wrap = pytest.mark.parametrize("case", [c for c in CASES if c.wrap_j], ids=_ids)


def _untested():
    """Return the families that are read, but have no case."""
    tested = {case.family.name for case in CASES}
    listed = (families.GPU_FAMILIES, families.HOST_FAMILIES, families.NAMED_FAMILIES)
    read = {family.name for group in listed for family in group}
    return read - tested


def test_every_family_has_a_case():
    """A family that is read is also tested."""
    assert _untested() == set()


def test_a_vendor_is_a_file_and_a_line(monkeypatch):
    """With the made-up vendor in the list, it is tested; another one would be reported."""
    monkeypatch.setattr(families, "GPU_FAMILIES", (*families.GPU_FAMILIES, acme.FAMILY))
    assert _untested() == set()
    other = replace(acme.FAMILY, name="Other GPU")
    monkeypatch.setattr(families, "GPU_FAMILIES", (*families.GPU_FAMILIES, other))
    assert _untested() == {"Other GPU"}


# --- what is read


@every_case
def test_values_have_si_units(case, tmp_path):
    """Power in W, energy in J since the first reading, and each gauge in its unit."""
    lab = Lab(case, tmp_path, Constant(250.0))
    lab.source.open()
    first = lab.values()
    lab.advance(12.8)
    last = lab.values()
    assert {q: v for q, v in first.items() if q not in METERING} == pytest.approx(case.gauges)
    if "power" in last:
        assert last["power"] == pytest.approx(case.share * 250.0, rel=1e-3)
    if case.has_energy:
        assert first["energy"] == 0.0
        assert last["energy"] == pytest.approx(lab.truth_j(0.0, 12.8), rel=1e-3)
    assert METERING & last.keys()


@every_case
def test_channels_say_what_is_measured(case, tmp_path):
    """Scope, file, error and source of each fact; the unit of a counter is that of a counter."""
    lab = Lab(case, tmp_path)
    channels = quantities(lab.source.open())
    for quantity, channel in channels.items():
        assert channel.device.scope == case.scope
        assert channel.device.origin == "measured"
        assert Path(channel.sensor.name).is_relative_to(lab.found[0].folder)
        assert channel.sensor.citation
        assert (channel.kind == "counter") == (quantity in ("energy", "throttled"))
    metered = channels.get("energy") or channels["power"]
    assert 0.0 < metered.sensor.relative_error < 1.0
    assert case.family.permission_fix
    assert case.family.absence_fix


@every_case
def test_energy_is_integrated_power(case, tmp_path):
    """A minute of a load that changes every 3.5 s is right within 2 %, and so are its parts."""
    sampled = Sampled(Lab(case, tmp_path))
    sampled.advance(62.0)
    sampled.stop()
    for span in ((1.0, 60.0), (5.0, 26.0), (10.5, 45.5)):
        sampled.assert_right(*span)
    assert {notice.kind for notice in sampled.notices} - {"remark"} == {"opened"}


@every_case
def test_two_devices_are_two(case, tmp_path):
    """Two devices have separate energies, and identities of their own."""
    lab = Lab(case, tmp_path, Constant(100.0), Constant(300.0))
    if case.is_only_one:
        assert lab.found == []
        return
    assert len(lab.found) == 2
    if any(one.pci for one in lab.found):
        assert len({(one.device.uuid, one.pci) for one in lab.found}) == 2
    sampled = Sampled(lab)
    sampled.advance(22.0)
    sampled.stop()
    for index in (0, 1):
        sampled.assert_right(1.0, 20.0, index)


@every_case
def test_pickled_until_opened(case, tmp_path):
    """A source that was not opened can be sent to another process."""
    lab = Lab(case, tmp_path)
    copy = pickle.loads(pickle.dumps(lab.source))
    assert copy.name == lab.source.name
    assert METERING & quantities(copy.open()).keys()


@every_case
def test_files_are_closed(case, tmp_path):
    """No file stays open, and closing twice is safe."""
    lab = Lab(case, tmp_path)
    before = len(list(Path("/proc/self/fd").iterdir()))
    lab.source.open()
    lab.source.open()
    assert len(list(Path("/proc/self/fd").iterdir())) > before
    lab.source.close()
    lab.source.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    with pytest.raises(ReadingMissed, match="not open"):
        lab.source.read()


@every_case
def test_an_empty_machine_has_no_device(case, tmp_path):
    """Without the files of a family there is no device, and no error."""
    tree = Tree(tmp_path / "sys")
    assert found_devices(case, tree.root) == []


# --- counters


@every_wrap
def test_wrap(case, tmp_path):
    """Across the end of its range, a counter loses nothing; the source reports the wrap."""
    lab = Lab(case, tmp_path, start_j=case.wrap_j - 2000.0)
    sampled = Sampled(lab)
    sampled.advance(32.0)
    sampled.stop()
    sampled.assert_right(1.0, 30.0)
    assert "restarted at the end of its range 1 time" in sampled.says("remark")[0]


@every_counter
def test_reset(case, tmp_path):
    """After a reset, the time of the reset has no energy from the counter, and the rest is right.

    A reset that counted as a wrap would add up to the range of the counter.
    """
    lab = Lab(case, tmp_path)
    sampled = Sampled(lab)
    sampled.advance(14.0)
    lab.running.reset(lab.live[0])
    sampled.advance(18.0)
    sampled.stop()
    sampled.assert_right(1.0, 13.0)
    sampled.assert_right(16.0, 30.0)
    sampled.assert_gap(13.5, 15.0, has_shape=True)
    assert sampled.timeline.disagreements() == {lab.found[0].device.key: 1}


@every_counter
def test_stopped_counter(case, tmp_path):
    """A counter that has stopped reports no energy, instead of 0 W, until it counts again."""
    lab = Lab(case, tmp_path)
    if not any(row.stale_s for row in case.rows(lab.found[0]) if row.quantity == "energy"):
        pytest.skip("the counter may stand still")
    sampled = Sampled(lab)
    sampled.advance(14.0)
    path = lab.live[0].path("energy")
    stopped = (lab.running.tree.root / path).read_bytes()
    lab.running.change(path, stopped)
    sampled.advance(14.0)
    lab.running.change(path, None)
    sampled.advance(14.0)
    sampled.stop()
    sampled.assert_right(1.0, 13.0)
    sampled.assert_gap(15.0, 27.0, has_shape=True)
    sampled.assert_right(30.0, 40.0)


@every_counter
def test_counter_without_change_at_the_start(case, tmp_path):
    """Until the first change, the energy of the counter is not known, rather than 0 J."""
    lab = Lab(case, tmp_path)
    if not any(row.stale_s for row in case.rows(lab.found[0]) if row.quantity == "energy"):
        pytest.skip("the counter may stand still")
    path = lab.live[0].path("energy")
    lab.running.change(path, (lab.running.tree.root / path).read_bytes())
    sampled = Sampled(lab)
    sampled.advance(14.0)
    lab.running.change(path, None)
    sampled.advance(14.0)
    sampled.stop()
    sampled.assert_gap(1.0, 13.0, has_shape=True)
    sampled.assert_right(17.0, 27.0)


# --- no value


@pytest.mark.parametrize(("case", "name"), HIDDEN, ids=_ids)
def test_no_value_is_no_reading(case, name, tmp_path):
    """A file without a value gives no reading, never 0, and what follows is right."""
    lab = Lab(case, tmp_path)
    sampled = Sampled(lab)
    sampled.advance(14.0)
    lab.change_all(case.no_values[name])
    sampled.advance(5.0)
    lab.change_all(None)
    sampled.advance(40.0)
    sampled.stop()
    sampled.assert_right(1.0, 13.0)
    energy_j, coverage = sampled.energy(13.0, 25.0)
    if coverage > 0.99:
        assert energy_j == pytest.approx(lab.truth_j(13.0, 25.0), rel=0.02)
    assert energy_j <= 1.02 * lab.truth_j(13.0, 25.0)
    sampled.assert_right(35.0, 55.0)
    assert "ReadingMissed" in sampled.says("missed")[0]


@every_case
def test_values_that_mean_no_value(case, tmp_path):
    """Each value that the table states as missing gives no reading of its quantity."""
    lab = Lab(case, tmp_path)
    channels = quantities(lab.source.open())
    for row in case.rows(lab.found[0]):
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


def _opened_or_none(lab):
    """Return the channels of the device; empty if it is refused."""
    try:
        return lab.source.open()
    except SourceUnavailable:
        return ()


@pytest.mark.parametrize(("case", "name"), HIDDEN, ids=_ids)
def test_no_value_at_the_start(case, name, tmp_path):
    """A device whose files have no value is refused, with the reason and what to do."""
    lab = Lab(case, tmp_path)
    lab.change_all(case.no_values[name])
    with pytest.raises(SourceUnavailable) as caught:
        lab.source.open()
    assert caught.value.fix == case.family.absence_fix
    assert str(lab.found[0].folder) in caught.value.reason


@every_case
def test_missing_files(case, tmp_path):
    """Without files of power and energy, the error says what to do; no file stays open."""
    lab = Lab(case, tmp_path)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for path in lab.metering_paths():
        lab.running.tree.remove(path)
    with pytest.raises(SourceUnavailable) as caught:
        lab.source.open()
    assert caught.value.fix == case.family.absence_fix
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@every_case
def test_a_missing_gauge_is_left_out(case, tmp_path):
    """Files of other quantities may be missing: power and energy are read without them."""
    lab = Lab(case, tmp_path)
    channels = quantities(lab.source.open())
    lab.source.close()
    for quantity in channels.keys() - METERING:
        Path(channels[quantity].sensor.name).unlink()
    assert METERING & quantities(lab.source.open()).keys()
    lab.advance(1.6)
    assert METERING & lab.values().keys()


def _forbid(monkeypatch, paths):
    """Make files unreadable, also for root."""
    really_open = os.open

    def guarded(path, *args, **kwargs):
        if Path(path).resolve() in paths:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return really_open(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", guarded)


@every_case
def test_permission_denied(case, tmp_path, monkeypatch):
    """A device whose files must not be read is refused, with the file and what to do."""
    lab = Lab(case, tmp_path)
    paths = {(lab.running.tree.root / path).resolve() for path in lab.metering_paths()}
    _forbid(monkeypatch, paths)
    with pytest.raises(SourceUnavailable) as caught:
        lab.source.open()
    assert caught.value.fix == case.family.permission_fix
    assert any(Path(word.rstrip(":")).resolve() in paths for word in caught.value.reason.split())


@every_case
def test_permission_denied_for_a_gauge(case, tmp_path, monkeypatch):
    """Quantities whose files must not be read are named in a note; all others are read."""
    lab = Lab(case, tmp_path)
    names = {
        quantity: channel.sensor.name
        for quantity, channel in quantities(lab.source.open()).items()
        if quantity not in METERING
    }
    _forbid(monkeypatch, {Path(name).resolve() for name in names.values()})
    channels = quantities(lab.source.open())
    assert METERING & channels.keys()
    notes = " ".join(next(iter(channels.values())).device.notes)
    # A quantity with several files is read from another one.
    assert all(name in notes for quantity, name in names.items() if quantity not in channels)
    assert channels.keys() - METERING < names.keys() or not names


# --- a device that goes away


@every_case
def test_unplugged_and_back(case, tmp_path):
    """A device that is gone is reported, has no energy, and is measured again when it is back."""
    lab = Lab(case, tmp_path)
    sampled = Sampled(lab)
    sampled.advance(14.0)
    lab.running.unplug(lab.live[0])
    sampled.advance(10.0)
    lab.running.replug(lab.live[0])
    sampled.advance(30.0)
    sampled.stop()
    assert [notice.kind for notice in sampled.notices[:3]] == ["opened", "lost", "back"]
    assert "is gone" in sampled.says("lost")[0]
    sampled.assert_right(1.0, 13.0)
    sampled.assert_gap(14.0, 24.0)
    sampled.assert_right(30.0, 50.0)


@every_case
def test_files_of_a_device_that_is_gone(case, tmp_path, monkeypatch):
    """The kernel's error for files of a removed device means that the device is gone."""
    lab = Lab(case, tmp_path)
    lab.source.open()

    def gone(*_):
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))

    monkeypatch.setattr(os, "pread", gone)
    with pytest.raises(SourceLost, match="is gone"):
        lab.source.read()


@every_case
def test_other_errors_are_missed_readings(case, tmp_path, monkeypatch):
    """An error of the driver is a missed reading; the next call may succeed."""
    lab = Lab(case, tmp_path)
    lab.source.open()
    lab.source.read()
    lab.advance(1.0)
    with monkeypatch.context() as patch:

        def fail(*_):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        patch.setattr(os, "pread", fail)
        with pytest.raises(ReadingMissed, match="Input/output error"):
            lab.source.read()
    lab.advance(1.0)
    assert METERING & lab.values().keys()
