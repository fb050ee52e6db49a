"""Tests of the logs of gputop in all variants."""

import json
import time
import tracemalloc
from datetime import timedelta

import pytest

from energy_callbacks.core.errors import JournalError
from energy_callbacks.report import load
from tests.importers.logs import HOSTILE, MIB, START, as_json, cut, native, simple, times


def _codes(report):
    return [warning.code for warning in report.warnings]


def test_energy_is_by_time_and_not_by_count(tmp_path):
    """100 steps of 1.115 s at 250 W are 27,875 J with a systematic error of 10 %."""
    path = as_json(
        tmp_path / "stats-amd-20261121-001739.json", [native(t) for t in times(101, 1.115)]
    )
    report = load(path)
    assert report.energy.gpu.energy_j == pytest.approx(250.0 * 111.5, rel=1e-9)
    assert report.energy.gpu.systematic_j == pytest.approx(0.1 * 250.0 * 111.5)
    assert (report.energy.gpu.method, report.energy.gpu.coverage) == ("power", 1.0)
    assert report.run.duration_s == pytest.approx(111.5)
    assert any("power samples 1.1 s apart. How" in note for note in report.method_notes)
    [card] = report.devices
    assert (card.name, card.mean_power_w) == ("AMD Radeon Pro W7900", pytest.approx(250.0))
    assert card.memory_peak_bytes == 1424 * MIB
    assert (card.utilisation_mean, card.temperature_max_c) == (pytest.approx(0.95), 56.0)
    [curve] = report.series
    assert [w for w in curve.power_w if w is not None] == pytest.approx([250.0] * 100)
    area_j = sum(s * (w or 0.0) for s, w in zip(curve.seen_s, curve.power_w, strict=True))
    assert area_j == pytest.approx(250.0 * 111.5, rel=1e-3)
    assert not {"gaps", "log_clock", "log_cut_off"} & set(_codes(report))


def test_a_ramp_is_integrated_exactly_and_a_step_has_its_error(tmp_path):
    """A linear rise is exact; a step from a to b within dt has the error |b - a| dt / sqrt(12)."""
    rise = [native(at, 100.0 + 10.0 * n) for n, at in enumerate(times(11, 2.0))]
    figure = load(as_json(tmp_path / "rise.json", rise)).energy.gpu
    assert figure.energy_j == pytest.approx(150.0 * 20)
    step = [native(at, 100.0 if n < 5 else 400.0) for n, at in enumerate(times(11, 2.0))]
    figure = load(as_json(tmp_path / "step.json", step)).energy.gpu
    assert figure.energy_j == pytest.approx(8 * 100.0 + 2 * 250.0 + 10 * 400.0)
    assert figure.stderr_j == pytest.approx(300.0 * 2.0 / 12**0.5)


def test_gaps_are_reported_and_not_bridged(tmp_path):
    """A pause of 30 s at one sample per second adds no energy and lowers the coverage."""
    at = times(21, 1.0)
    late = [one + timedelta(seconds=29.0) for one in at[11:]]
    report = load(as_json(tmp_path / "gap.json", [native(one) for one in (*at[:11], *late)]))
    assert report.energy.gpu.energy_j == pytest.approx(250.0 * 19)
    assert report.energy.gpu.coverage == pytest.approx(19 / 49)
    [gap] = [warning for warning in report.warnings if warning.code == "gaps"]
    assert "30.0 s in one gap are not included" in gap.message
    assert report.devices[0].mean_power_w == pytest.approx(250.0)
    [curve] = report.series
    area_j = sum(s * (w or 0.0) for s, w in zip(curve.seen_s, curve.power_w, strict=True))
    assert area_j == pytest.approx(250.0 * 19, rel=1e-3)


def test_short_gaps_of_a_fast_log_leave_the_mean_power_as_it_was(tmp_path):
    """With ten samples per second during every other second, coverage is half, at 250 W."""
    at = [one for one in times(401, 0.1) if (one - START).total_seconds() % 2.0 < 1.05]
    report = load(as_json(tmp_path / "fast.json", [native(one) for one in at]))
    assert report.energy.gpu.coverage == pytest.approx(0.5, abs=0.02)
    assert report.devices[0].mean_power_w == pytest.approx(250.0)


def test_zero_watts_are_not_known(tmp_path):
    """Samples of 0 W, which gputop writes for unknown power, are bridged."""
    powers = [250.0, 0, 250.0, 250.0] * 5 + [250.0]
    records = [native(at, w) for at, w in zip(times(21, 1.0), powers, strict=True)]
    report = load(as_json(tmp_path / "zeros.json", records))
    assert report.energy.gpu.energy_j == pytest.approx(250.0 * 20)
    assert "unusable_power" in _codes(report)
    never = [native(at, 0) for at in times(21, 1.0)]
    report = load(as_json(tmp_path / "never.json", never))
    assert report.energy.gpu.energy_j is None
    assert "no_power" in _codes(report)
    assert not any(warning.fix.endswith("doctor") for warning in report.warnings)
    assert report.memory.device_used_peak_bytes == 1424 * MIB


def test_cards_that_were_looked_at_in_turn_are_told_apart(tmp_path):
    """Two cards sampled for 10 s each, one after the other, have their own energy and coverage."""
    records = [
        native(at, 100.0 if n <= 10 else 200.0, int(n > 10)) for n, at in enumerate(times(21, 1.0))
    ]
    report = load(as_json(tmp_path / "two.json", records))
    energies = {device.key: device.energy for device in report.devices}
    assert energies["gpu0"].energy_j == pytest.approx(1000.0)
    assert energies["gpu1"].energy_j == pytest.approx(1800.0)
    assert energies["gpu0"].coverage == pytest.approx(0.5)
    assert _codes(report).count("gaps") == 2


def test_the_file_of_all_cards_is_read_instead(tmp_path):
    """``_multi_gpu`` beside a native file is read instead of it, because it has all cards."""
    path = as_json(tmp_path / "stats.json", [native(at, 111.0) for at in times(11, 1.0)])
    cards = [{"gpu_index": n, "gpu_name": f"card {n}", "power": 100.0 * (n + 1), "utilization": 5.0,
              "memory_used": 10.0, "temperatures": {"GPU": 40}} for n in range(3)]  # fmt: skip
    several = [
        {"timestamp": at.isoformat(), "multi_gpu_data": cards, "aggregate_stats": {"gpu_count": 3}}
        for at in times(11, 1.0)
    ]
    companion = as_json(tmp_path / "stats_multi_gpu.json", several)
    for one in (path, companion):
        report = load(one)
        assert report.energy.gpu.energy_j == pytest.approx(10 * 600.0)
        assert [device.name for device in report.devices] == ["card 0", "card 1", "card 2"]
    assert any("read instead of stats.json" in note for note in load(path).method_notes)


def test_simple_files_have_their_metadata_as_tags(tmp_path):
    """Name, command and options of the training are taken from the first record with metadata."""
    told = {"training_command": "python train.py", "optimizer": "adamw", "epoch": 3, "lr": 0.1}
    records = [simple(at) for at in times(11, 1.0)]
    records[0]["training_metadata"] = told
    report = load(as_json(tmp_path / "gpu_stats_resnet18_adamw_20261121_001739.json", records))
    assert report.run.name == "resnet18_adamw"
    assert report.run.command == "python train.py"
    assert report.run.tags == {"optimizer": "adamw", "lr": "0.1"}
    assert report.devices[0].temperature_max_c == 56.0


def test_the_printed_form_with_metadata_in_every_record(tmp_path):
    """Metadata in every record and ``AMD`` in capitals do not change the energy."""
    records = [
        simple(at, gpu_type="AMD", elapsed_seconds=n, training_metadata={"model": "lenet5"})
        for n, at in enumerate(times(11, 1.0))
    ]
    report = load(as_json(tmp_path / "doc.json", records))
    assert report.energy.gpu.energy_j == pytest.approx(2500.0)
    assert report.run.tags == {"model": "lenet5"}


def test_a_file_that_was_cut_gives_what_came_before(tmp_path):
    """All complete records before a cut count, whether the cut is in a record or between two."""
    path = as_json(tmp_path / "cut.json", [native(at) for at in times(21, 1.0)])
    report = load(cut(path, lambda text: text.rindex('"power"')))
    assert report.energy.gpu.energy_j == pytest.approx(250.0 * 19)
    assert "log_cut_off" in _codes(report)
    report = load(cut(path, lambda text: text.rindex("},") + 2))
    assert "log_cut_off" in _codes(report)


def test_a_damaged_record_in_the_middle_is_left_out(tmp_path):
    """A damaged record is skipped; the step over it is two samples long, which is no gap."""
    path = as_json(tmp_path / "hole.json", [native(at) for at in times(21, 1.0)])
    text = path.read_text()
    place = text.index(times(21, 1.0)[7].isoformat())
    path.write_text(text[:place] + '"}}} oops' + text[place:])
    report = load(path)
    assert report.energy.gpu.energy_j == pytest.approx(250.0 * 20)
    assert "damaged_lines" in _codes(report)


@pytest.mark.parametrize("value", HOSTILE, ids=repr)
@pytest.mark.parametrize("field", ["power", "memory_used", "timestamp", "gpu_index", "utilization"])
def test_what_is_no_number_is_not_taken_for_one(tmp_path, field, value):
    """One invalid value among 21 samples affects no figure."""
    records = [native(at) for at in times(21, 1.0)]
    records[10][field] = value
    report = load(as_json(tmp_path / "hostile.json", records))
    assert sum(device.energy.energy_j or 0.0 for device in report.devices) <= 250.0 * 20 + 1e-6
    assert report.devices[0].energy.energy_j == pytest.approx(250.0 * 20)
    assert report.memory.device_used_peak_bytes == 1424 * MIB


def test_a_clock_that_goes_back_is_said_and_makes_no_joules(tmp_path):
    """A step back of ten minutes counts as no time and is reported."""
    at = times(21, 1.0)
    back = [one - timedelta(seconds=600.0) for one in at[11:]]
    report = load(as_json(tmp_path / "back.json", [native(one) for one in (*at[:11], *back)]))
    assert report.energy.gpu.energy_j == pytest.approx(250.0 * 19)
    [said] = [warning for warning in report.warnings if warning.code == "log_clock"]
    assert "set once (by -599.000 s)" in said.message


def test_the_end_of_summer_time_keeps_durations(tmp_path):
    """A step back of an hour at the end of summer time keeps the duration and is reported."""
    at = times(21, 1.0)
    back = [one - timedelta(hours=1) for one in at[11:]]
    report = load(as_json(tmp_path / "winter.json", [native(one) for one in (*at[:11], *back)]))
    assert report.energy.gpu.energy_j == pytest.approx(250.0 * 20)
    assert report.run.duration_s == pytest.approx(20.0)
    assert "log_clock" in _codes(report)
    ahead = [one + timedelta(hours=1) for one in at[11:]]
    report = load(as_json(tmp_path / "summer.json", [native(one) for one in (*at[:11], *ahead)]))
    assert report.energy.gpu.energy_j == pytest.approx(250.0 * 19)
    assert {"log_clock", "gaps"} <= set(_codes(report))


@pytest.mark.parametrize("slip_s", [-500.0, -0.4, 40 * 86400.0])
def test_one_wrong_time_is_a_slip(tmp_path, slip_s):
    """One wrong time does not change the duration if the next time is right again."""
    at = times(21, 1.0)
    at[10] += timedelta(seconds=slip_s)
    report = load(as_json(tmp_path / "slip.json", [native(one) for one in at]))
    assert report.run.duration_s == pytest.approx(20.0)
    assert report.energy.gpu.energy_j == pytest.approx(250.0 * 20)


@pytest.mark.parametrize("count", [0, 1])
def test_a_log_without_two_samples_is_refused(tmp_path, count):
    """A log with less than two samples is refused."""
    path = tmp_path / "short.json"
    path.write_text(json.dumps([native(at) for at in times(count, 1.0)]))
    with pytest.raises(JournalError, match=r"short\.json"):
        load(path)


def test_256_mib_of_nothing_are_neither_kept_nor_waited_for(tmp_path):
    """Records before 256 MiB of zeros are read with bounded memory and time."""
    path = as_json(tmp_path / "huge.json", [native(at) for at in times(11, 1.0)])
    with path.open("r+b") as file:
        file.seek(-2, 2)
        file.truncate()
        file.truncate(2**28)
    tracemalloc.start()
    started = time.process_time()
    try:
        report = load(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert report.energy.gpu.energy_j == pytest.approx(2500.0)
    assert "log_cut_off" in _codes(report)
    assert peak < 64 * MIB
    assert time.process_time() - started < 60.0


def test_a_million_open_braces_are_given_up(tmp_path):
    """Decoding stops after many positions in a row at which no record begins."""
    path = as_json(tmp_path / "braces.json", [native(at) for at in times(11, 1.0)])
    with path.open("a") as file:
        file.write(",[{" * 2_000_000)
    path.write_text(path.read_text().replace("\n]", "\n", 1))
    started = time.process_time()
    assert load(path).energy.gpu.energy_j == pytest.approx(2500.0)
    assert time.process_time() - started < 20.0
