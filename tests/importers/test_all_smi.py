"""Tests of recordings of all-smi."""

import gzip
import json
import sys

import pytest

from energy_callbacks.core.errors import JournalError, MissingExtraError
from energy_callbacks.report import load
from tests.importers.logs import HOSTILE, MIB, as_lines, cut, frame

ZERO_S = 1_795_000_000
HEADER = {"all_smi_version": "0.26.2", "header": True, "hosts": ["node1"], "interval_ms": 2000,
          "schema": 1}  # fmt: skip


def _frames(count=21, step_s=2):
    return [HEADER, *(frame(ZERO_S + step_s * n) for n in range(count))]


def _codes(report):
    return [warning.code for warning in report.warnings]


def _packed(path, data):
    zstandard = pytest.importorskip("zstandard")
    path.write_bytes(zstandard.ZstdCompressor().compress(data))
    return path


def test_a_recording_is_a_run(tmp_path):
    """One frame every 2 s at 400 W for 40 s is 16 kJ; memory, host and start are from the log."""
    frames = _frames()
    frames.insert(10, {"schema": 1, "index": True, "seq": 1000, "byte_offset": 7})
    report = load(as_lines(tmp_path / "record.ndjson", frames))
    assert report.energy.gpu.energy_j == pytest.approx(16_000.0)
    assert report.memory.device_used_peak_bytes == 3 * MIB
    assert (report.run.started_unix_s, report.environment["host"]) == (ZERO_S, "node1")
    assert (report.run.framework, report.run.framework_version) == ("log of all-smi", "0.26.2")
    assert not {"damaged_lines", "log_clock", "gaps"} & set(_codes(report))


def test_packed_recordings_are_read(tmp_path):
    """``.gz`` and, with zstandard, ``.zst`` files are read, also if their end is missing."""
    data = as_lines(tmp_path / "record.ndjson", _frames(2000)).read_bytes()
    (tmp_path / "record.ndjson.gz").write_bytes(gzip.compress(data))
    assert load(tmp_path / "record.ndjson.gz").energy.gpu.energy_j == pytest.approx(400.0 * 3998)
    path = _packed(tmp_path / "record.ndjson.zst", data)
    assert load(path).energy.gpu.energy_j == pytest.approx(400.0 * 3998)
    for packed in (path, tmp_path / "record.ndjson.gz"):
        packed.write_bytes(packed.read_bytes()[:-200])
        report = load(packed)
        assert 0.0 < report.energy.gpu.energy_j < 400.0 * 3998
        assert "log_cut_off" in _codes(report)


@pytest.mark.parametrize("ending", ["gz", "zst"])
def test_a_packed_file_that_is_damaged_gives_what_came_before(tmp_path, ending):
    """With inverted bytes in the middle, the data before them is read without an exception."""
    data = as_lines(tmp_path / "record.ndjson", _frames(20_000)).read_bytes()
    path = tmp_path / f"record.ndjson.{ending}"
    packed = bytearray(gzip.compress(data) if ending == "gz" else _packed(path, data).read_bytes())
    middle = len(packed) // 2
    packed[middle : middle + 64] = bytes(255 - byte for byte in packed[middle : middle + 64])
    path.write_bytes(packed)
    report = load(path)
    assert 0.0 < report.energy.gpu.energy_j <= 400.0 * 39_998
    assert {"log_cut_off", "damaged_lines"} & set(_codes(report))


def test_zstandard_is_asked_for_where_it_is_missing(tmp_path, monkeypatch):
    """The error for a missing zstandard names the extra."""
    path = _packed(tmp_path / "record.ndjson.zst", b"{}")
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(MissingExtraError, match=r"\[zstd\]"):
        load(path)


def test_a_packed_file_that_claims_a_gigabyte_is_not_unpacked_into_memory(tmp_path):
    """A header that claims 1 GB does not matter; the actual content is read."""
    zstandard = pytest.importorskip("zstandard")
    data = as_lines(tmp_path / "record.ndjson", _frames()).read_bytes()
    packer = zstandard.ZstdCompressor().compressobj(size=2**30)
    path = tmp_path / "claims.ndjson.zst"
    path.write_bytes(packer.compress(data) + packer.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK))
    report = load(path)
    assert report.energy.gpu.energy_j == pytest.approx(16_000.0)


def test_a_frame_that_was_cut_is_left_out(tmp_path):
    """The last frame was cut and is left out."""
    report = load(cut(as_lines(tmp_path / "r.ndjson", _frames()), lambda text: len(text) - 30))
    assert report.energy.gpu.energy_j == pytest.approx(400.0 * 38)
    assert "log_cut_off" in _codes(report)


@pytest.mark.parametrize("value", [*HOSTILE, -1.0, 0.0, None], ids=repr)
@pytest.mark.parametrize("field", ["power_consumption", "used_memory", "utilization"])
def test_what_is_no_number_is_not_taken_for_one(tmp_path, field, value):
    """Values of -1 and 0 W, which all-smi writes for unknown values, are left out."""
    frames = _frames()
    frames[10]["gpus"][0][field] = value
    report = load(as_lines(tmp_path / "r.ndjson", frames))
    assert report.energy.gpu.energy_j == pytest.approx(16_000.0)
    assert report.memory.device_used_peak_bytes == 3 * MIB


@pytest.mark.parametrize("line", ["[" * 100_000, '{"a":' * 50_000, "NaN", '"text"', "{"])
def test_lines_that_are_no_frame_are_counted(tmp_path, line):
    """Lines that are no frame are counted, also if they are deeply nested."""
    path = as_lines(tmp_path / "r.ndjson", _frames())
    lines = path.read_text().splitlines()
    lines.insert(10, line)
    path.write_text("\n".join(lines) + "\n")
    report = load(path)
    assert report.energy.gpu.energy_j == pytest.approx(16_000.0)
    assert "damaged_lines" in _codes(report)


def test_times_that_go_back_and_no_times_at_all(tmp_path):
    """A step back of an hour in UTC is a clock that was set, not the end of summer time."""
    frames = _frames()
    for one in frames[11:]:
        one["timestamp"] = frame(ZERO_S - 3600 + 2 * frames.index(one))["timestamp"]
    report = load(as_lines(tmp_path / "r.ndjson", frames))
    assert report.energy.gpu.energy_j == pytest.approx(400.0 * 38)
    assert "log_clock" in _codes(report)
    for one in frames[1:]:
        one["timestamp"] = "now"
    with pytest.raises(JournalError, match="without two samples"):
        load(as_lines(tmp_path / "none.ndjson", frames))


def test_processors_count_where_they_tell_their_power_and_hosts_are_named(tmp_path):
    """With two hosts, names of devices include the host; only CPUs with a power are read."""
    frames = _frames()
    for one in frames[1:]:
        other = json.loads(json.dumps(one["gpus"][0])) | {"hostname": "node2", "uuid": "GPU-b"}
        one["gpus"].append(other)
        cpu = {"hostname": "node1", "cpu_model": "M5", "index": 0, "utilization": 10.0}
        one["cpus"] = [cpu | {"power_consumption": 20.0}, cpu | {"hostname": "node2"}]
    report = load(as_lines(tmp_path / "r.ndjson", frames))
    assert report.energy.gpu.energy_j == pytest.approx(2 * 16_000.0)
    assert report.energy.host.energy_j == pytest.approx(20.0 * 40)
    assert {d.name for d in report.devices} == {
        "NVIDIA H200 on node1", "NVIDIA H200 on node2", "M5 on node1"
    }  # fmt: skip
