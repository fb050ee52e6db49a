"""Every source behaves in the same way, whatever happens to its sensor."""

import importlib
import inspect
import pickle
import pkgutil
from dataclasses import replace
from pathlib import Path

import pytest

from energy_callbacks.core.errors import ReadingMissed, SourceLost, SourceUnavailable
from energy_callbacks.sensing import sources
from energy_callbacks.sensing.sources.sysfs import families
from tests.fake_nvml.signals import Constant
from tests.sensing.sources.conformance import acme
from tests.sensing.sources.conformance.case import (
    FAULTS,
    FamilyCase,
    FileLab,
    Sampled,
    quantities,
)
from tests.sensing.sources.conformance.cases import CASES

METERING = {"power", "energy"}
NO_VALUES = [(case, name) for case in CASES for name in case.no_values]


def _ids(value):
    return getattr(value, "name", value)


def every_case(fault=""):
    """Run a test for every case in which a fault can occur."""
    cases = [case for case in CASES if fault not in case.impossible]
    assert not fault or (fault in FAULTS and cases)
    return pytest.mark.parametrize("case", cases, ids=_ids)


# Sources without a case, because they have no sensor that could fail.
NO_SENSORS = {
    "AllocatorSource": "memory of PyTorch, which this process asks",
    "HostEstimateSource": "a model",
    "HostMemorySource": "memory of processes, by psutil",
    "ReplaySource": "readings of a file",
}


def _all_sources():
    """Return the classes of sources that the product has, by name."""
    found = {}
    for module in pkgutil.walk_packages(sources.__path__, f"{sources.__name__}."):
        for name, one in vars(importlib.import_module(module.name)).items():
            is_source = all(hasattr(one, method) for method in ("open", "read", "close"))
            if isinstance(one, type) and is_source and not _is_abstract(one):
                found[name] = one
    return found


def _is_abstract(one):
    return inspect.isabstract(one) or getattr(one, "_is_protocol", False)


def _untested(found):
    """Return the names of sources, families and libraries that are read, but have no case."""
    tested = {case.source for case in CASES}
    listed = (families.GPU_FAMILIES, families.HOST_FAMILIES, families.NAMED_FAMILIES)
    read = {family.name: family for group in listed for family in group}
    family_cases = [case for case in CASES if isinstance(case, FamilyCase)]
    with_library = {name for name, one in read.items() if one.library}
    return {
        *(name for name, one in found.items() if one not in tested and name not in NO_SENSORS),
        *(read.keys() - {case.family.name for case in family_cases}),
        *(with_library - {one.family.name for one in family_cases if one.has_library}),
    }


def test_every_source_has_a_case():
    """A source that is read is also tested."""
    found = _all_sources()
    assert {"NvmlSource", "SysfsSource", *NO_SENSORS} <= found.keys()
    assert _untested(found) == set()


def test_a_new_source_needs_a_case(monkeypatch):
    """A source, a family or a library without a case would be reported."""
    assert _untested({"NewSource": object}) == {"NewSource"}
    acme_library = replace(acme.FAMILY, library=lambda *_: ())
    other = replace(acme.FAMILY, name="Other GPU")
    monkeypatch.setattr(families, "GPU_FAMILIES", (acme.FAMILY,))
    assert _untested({}) == set()
    monkeypatch.setattr(families, "GPU_FAMILIES", (acme_library, other))
    assert _untested({}) == {"Acme GPU", "Other GPU"}


@every_case()
def test_reasons_are_those_of_faults(case):
    """A fault that is not tested has a reason."""
    assert case.impossible.keys() <= FAULTS.keys()
    assert all(case.impossible.values())


# --- what is read


@every_case()
def test_values_have_si_units(case, play):
    """Power in W, energy in J, and each gauge in its unit."""
    sampled = Sampled(play(case, Constant(250.0)))
    sampled.advance(12.8)
    sampled.stop()
    values = sampled.values()
    newest = {quantity: found[-1][1] for quantity, found in values.items()}
    assert {q: v for q, v in newest.items() if q not in METERING} == pytest.approx(case.gauges)
    assert METERING & values.keys()
    if "power" in values:
        assert newest["power"] == pytest.approx(case.share * 250.0, rel=1e-3)
    if "energy" in values:
        (first_s, first_j), (last_s, last_j) = values["energy"][0], values["energy"][-1]
        assert last_s - first_s > 8.0
        assert (last_j - first_j) / (last_s - first_s) == pytest.approx(250.0, rel=2e-3)


@every_case()
def test_channels_say_what_is_measured(case, play):
    """Scope, sensor, error and source of each fact; the kind of a counter is that of a counter."""
    lab = play(case)
    channels = quantities(one for one in lab.source.open() if one.device.key == lab.keys[0])
    for quantity, channel in channels.items():
        assert channel.device.scope == case.scope
        assert channel.device.origin == "measured"
        assert channel.sensor is None or channel.sensor.name
        assert (channel.kind == "counter") == (quantity in ("energy", "throttled"))
    metered = channels.get("energy") or channels["power"]
    assert 0.0 < metered.sensor.relative_error < 1.0
    assert metered.sensor.citation


@every_case()
def test_energy_is_integrated_power(case, play):
    """A minute of a load that changes every 3.5 s is right within 2 %, and so are its parts."""
    sampled = Sampled(play(case))
    sampled.advance(62.0)
    sampled.stop()
    for span in ((1.0, 60.0), (5.0, 26.0), (10.5, 45.5)):
        sampled.assert_right(*span)
    assert {notice.kind for notice in sampled.notices} - {"remark"} == {"opened"}


@every_case("two devices")
def test_two_devices_are_two(case, play):
    """Two devices have separate energies."""
    lab = play(case, Constant(100.0), Constant(300.0))
    assert len(set(lab.keys)) == 2
    sampled = Sampled(lab)
    sampled.advance(22.0)
    sampled.stop()
    for index in (0, 1):
        sampled.assert_right(1.0, 20.0, index)


@every_case()
def test_pickled_until_opened(case, play):
    """A source that was not opened can be sent to another process."""
    lab = play(case)
    copy = pickle.loads(pickle.dumps(lab.source))
    assert copy.name == lab.source.name
    assert METERING & quantities(copy.open()).keys()
    copy.close()


def _open_files():
    return len(list(Path("/proc/self/fd").iterdir()))


@every_case("not open")
def test_files_are_closed(case, play):
    """No file stays open, and closing twice is safe."""
    lab = play(case)
    before = _open_files()
    lab.source.open()
    lab.source.open()
    assert _open_files() > before or not isinstance(lab, FileLab)
    lab.source.close()
    lab.source.close()
    assert _open_files() == before
    with pytest.raises((ReadingMissed, SourceLost), match="not open"):
        lab.source.read()


# --- counters


@every_case("wrap")
def test_wrap(case, play):
    """Across the end of its range, a counter loses nothing; the source reports the wrap."""
    sampled = Sampled(play(case, start_j=case.wrap_j - 2000.0))
    sampled.advance(32.0)
    sampled.stop()
    sampled.assert_right(1.0, 30.0)
    assert "restarted at the end of its range 1 time" in sampled.says("remark")[0]


@every_case("reset")
def test_reset(case, play):
    """After a reset, the time of the reset has no energy from the counter, and the rest is right.

    A reset that counted as a wrap would add up to the range of the counter.
    """
    lab = play(case)
    sampled = Sampled(lab)
    sampled.advance(14.0)
    lab.begin("reset")
    sampled.advance(18.0)
    sampled.stop()
    sampled.assert_right(1.0, 13.0)
    sampled.assert_right(16.0, 30.0)
    sampled.assert_gap(13.5, 15.0, has_shape=True)
    assert sampled.timeline.disagreements() == {lab.keys[0]: 1}


@every_case("stopped")
def test_stopped_counter(case, play):
    """A counter that has stopped reports no energy, instead of 0 W, until it counts again."""
    lab = play(case)
    sampled = Sampled(lab)
    sampled.advance(14.0)
    lab.begin("stopped")
    sampled.advance(14.0)
    lab.end("stopped")
    sampled.advance(case.back_s + 12.0)
    sampled.stop()
    sampled.assert_right(1.0, 13.0)
    sampled.assert_gap(15.0, 27.0, has_shape=True)
    sampled.assert_right(28.0 + case.back_s, 38.0 + case.back_s)


@every_case("stopped at the start")
def test_counter_without_change_at_the_start(case, play):
    """Until the first change, the energy of the counter is not known, rather than 0 J."""
    lab = play(case)
    lab.begin("stopped")
    sampled = Sampled(lab)
    sampled.advance(14.0)
    lab.end("stopped")
    sampled.advance(14.0)
    sampled.stop()
    sampled.assert_gap(1.0, 13.0, has_shape=True)
    sampled.assert_right(17.0, 27.0)


# --- no value


@pytest.mark.parametrize(("case", "name"), NO_VALUES, ids=_ids)
def test_no_value_is_no_reading(case, name, play):
    """A sensor without a value gives no reading, never 0, and what follows is right."""
    lab = play(case)
    sampled = Sampled(lab)
    sampled.advance(14.0)
    lab.begin(name)
    sampled.advance(5.0)
    lab.end(name)
    sampled.advance(40.0)
    sampled.stop()
    sampled.assert_right(1.0, 13.0)
    energy_j, coverage = sampled.energy(13.0, 25.0)
    if coverage > 0.99:
        assert energy_j == pytest.approx(lab.truth_j(13.0, 25.0), rel=0.02)
    assert energy_j <= 1.02 * lab.truth_j(13.0, 25.0)
    sampled.assert_right(35.0, 55.0)
    notices = sampled.says(case.no_value_is)
    assert bool(notices) == (name not in case.quiet)
    assert all("ReadingMissed" in one for one in notices if case.no_value_is == "missed")


@pytest.mark.parametrize(
    ("case", "name"),
    [(case, name) for case, name in NO_VALUES if "no value at the start" not in case.impossible],
    ids=_ids,
)
def test_no_value_at_the_start(case, name, play):
    """A device without a value is refused, with the reason and what to do; no file stays open."""
    _assert_refused(play(case), name, case.fixes["missing"])


@every_case("missing")
def test_missing(case, play):
    """Without its files, its program or its driver, a source says what to do."""
    _assert_refused(play(case), "missing", case.fixes["missing"])


@every_case("permission")
def test_permission_denied(case, play):
    """A device that must not be read is refused, with what to do."""
    _assert_refused(play(case), "permission", case.fixes["permission"])


def _assert_refused(lab, fault, fix):
    before = _open_files()
    lab.begin(fault)
    with pytest.raises(SourceUnavailable) as caught:
        lab.source.open()
    assert caught.value.reason
    assert fix in caught.value.fix
    assert lab.place in caught.value.reason
    lab.end(fault)
    assert _open_files() == before


# --- a device that goes away


@every_case("unplugged")
def test_unplugged_and_back(case, play):
    """A device that is gone is reported, has no energy, and is measured again when it is back."""
    lab = play(case)
    sampled = Sampled(lab)
    sampled.advance(14.0)
    lab.begin("unplugged")
    sampled.advance(10.0)
    lab.end("unplugged")
    sampled.advance(30.0)
    sampled.stop()
    assert [notice.kind for notice in sampled.notices[:3]] == ["opened", "lost", "back"]
    assert case.gone in sampled.says("lost")[0]
    sampled.assert_right(1.0, 13.0)
    sampled.assert_gap(14.0, 24.0)
    sampled.assert_right(30.0, 50.0)
