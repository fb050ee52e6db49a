"""Every source behaves in the same way, whatever happens to its sensor."""

import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from energy_callbacks.core.errors import ReadingMissed, SourceLost, SourceUnavailable
from tests.fake_nvml.signals import Constant
from tests.sensing.sources.conformance.case import FAULTS, LOAD, FileLab, Lab, Sampled, quantities
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


@pytest.fixture
def play(tmp_path, monkeypatch) -> Iterator:
    """``play(case, signal, ...)``: the devices of a case with these powers."""
    labs: list[Lab] = []

    def make(case, *signals, start_j=50_000.0):
        labs.append(case.lab(tmp_path, monkeypatch, signals or (LOAD,), start_j))
        return labs[-1]

    yield make
    for lab in labs:
        lab.close()


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
    sampled.advance(14.0)
    sampled.stop()
    sampled.assert_right(1.0, 13.0)
    sampled.assert_gap(15.0, 27.0, has_shape=True)
    sampled.assert_right(30.0, 40.0)


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
    assert sampled.says("missed") or sampled.says("lost")


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
    assert fix in caught.value.fix
    assert caught.value.reason
    lab.end("no value")
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
