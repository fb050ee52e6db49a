"""Tests of the logs of ``monitor_gpu.py``, which have memory and no power."""

import json

import pytest

from energy_callbacks.core.errors import JournalError
from energy_callbacks.report import load
from tests.importers.logs import HOSTILE, MIB, as_json, cut


def _log(count=21, cards=2, claims=None):
    samples = [
        {
            "timestamp": 0.1 * number,
            "gpu_id": card,
            "memory_mb": 100.0 + number,
            "memory_total_mb": 24576.0,
            "gpu_utilization": 50.0,
            "model": "resnet50",
        }
        for number in range(count)
        for card in range(cards)
    ]
    total = len(samples) if claims is None else claims
    return {"model": "resnet50", "samples": samples, "interval_ms": 100, "total_samples": total}


def test_memory_is_there_and_energy_is_not_known(tmp_path):
    """Energy without power is unknown, not zero; memory over time is shown."""
    report = load(as_json(tmp_path / "log.json", _log()))
    assert report.run.name == "resnet50"
    assert report.energy.total.energy_j is None
    assert [device.memory_peak_bytes for device in report.devices] == [120 * MIB] * 2
    assert report.run.duration_s == pytest.approx(2.0)
    codes = [warning.code for warning in report.warnings]
    assert codes.count("no_power") == 2
    assert "log_cut_off" not in codes
    assert not any("doctor" in warning.fix for warning in report.warnings)
    assert max(value for value in report.series[0].memory_bytes if value) == 120 * MIB


def test_a_cut_file_is_said_to_be_one(tmp_path):
    """Half of a file gives its samples and a warning."""
    report = load(cut(as_json(tmp_path / "log.json", _log()), lambda text: len(text) // 2))
    assert report.run.duration_s == pytest.approx(1.0, abs=0.11)
    assert "log_cut_off" in [warning.code for warning in report.warnings]


def test_a_claim_of_a_billion_samples_is_not_believed(tmp_path):
    """A wrong number of samples in the file costs no time and is reported."""
    report = load(as_json(tmp_path / "log.json", _log(claims=10**9)))
    [said] = [one.message for one in report.warnings if one.code == "log_cut_off"]
    assert "states that it has 1000000000 samples, but contains 42" in said


@pytest.mark.parametrize("value", HOSTILE, ids=repr)
@pytest.mark.parametrize("field", ["timestamp", "gpu_id", "memory_mb"])
def test_what_is_no_number_is_not_taken_for_one(tmp_path, field, value):
    """One invalid value does not change the peak."""
    log = _log(cards=1)
    log["samples"][5][field] = value
    report = load(as_json(tmp_path / "log.json", log))
    assert report.memory.device_used_peak_bytes == 120 * MIB


def test_times_that_go_back_are_said(tmp_path):
    """A second recording in the file is reported as a clock that was set."""
    log = _log(cards=1)
    log["samples"] += json.loads(json.dumps(log["samples"]))
    report = load(as_json(tmp_path / "log.json", log))
    assert "log_clock" in [warning.code for warning in report.warnings]
    with pytest.raises(JournalError, match="without two samples"):
        load(as_json(tmp_path / "one.json", _log(count=1)))
