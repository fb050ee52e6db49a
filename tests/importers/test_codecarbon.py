"""Tests of CodeCarbon's emissions.csv."""

import csv

import pytest

from energy_callbacks.core.errors import JournalError
from energy_callbacks.report import build, load
from energy_callbacks.report.render import emissions_csv
from tests.importers.logs import HOSTILE, cut
from tests.report.journals import GERMANY, Attempt, write

ROW = {
    "timestamp": "2026-11-21T00:17:39",
    "project_name": "resnet",
    "run_id": "aaaa-1",
    "duration": 3600.0,
    "emissions": 0.2,
    "cpu_energy": 0.1,
    "gpu_energy": 0.25,
    "ram_energy": 0.05,
    "energy_consumed": 0.4,
    "country_name": "Germany",
    "country_iso_code": "DEU",
    "region": "berlin",
    "codecarbon_version": "3.3.2",
    "cpu_model": "Xeon",
    "gpu_count": 1.0,
    "gpu_model": "1 x NVIDIA H100",
    "tracking_mode": "machine",
    "pue": 1.0,
}


def _write(path, rows):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def _codes(report):
    return [warning.code for warning in report.warnings]


def test_one_run_is_its_totals(tmp_path):
    """Energies in kWh are converted to joules; method and location are CodeCarbon's."""
    report = load(_write(tmp_path / "emissions.csv", [ROW]))
    assert report.energy.gpu.energy_j == pytest.approx(0.25 * 3.6e6)
    assert report.energy.host.energy_j == pytest.approx(0.15 * 3.6e6)
    assert report.energy.total.method == "CodeCarbon"
    assert (report.energy.gpu.origin, report.energy.host.origin) == ("measured", "estimated")
    assert report.energy.gpu.systematic_j == pytest.approx(0.1 * 0.25 * 3.6e6)
    assert (report.run.name, report.run.duration_s) == ("resnet", 3600.0)
    assert report.emissions.place == "Germany"
    assert any("CodeCarbon stated 0.2 kg CO2e" in note for note in report.method_notes)
    assert not {"sum_differs", "place_unknown", "damaged_lines"} & set(_codes(report))


def test_of_several_runs_one_must_be_named(tmp_path):
    """``#RUN_ID`` and ``#last`` choose a run; the error for no or a wrong choice names the runs."""
    rows = [ROW, ROW | {"run_id": "bbbb-2", "gpu_energy": 0.5, "energy_consumed": 0.65}]
    path = _write(tmp_path / "emissions.csv", rows)
    with pytest.raises(
        JournalError, match=r"contains 2 runs.*emissions\.csv#last.*aaaa-1 \(resnet"
    ):
        load(path)
    assert load(f"{path}#aaaa-1").energy.gpu.energy_j == pytest.approx(0.25 * 3.6e6)
    assert load(f"{path}#last").energy.gpu.energy_j == pytest.approx(0.5 * 3.6e6)
    assert load(f"{path}#aaaa-1").run.run_id != load(f"{path}#last").run.run_id
    with pytest.raises(JournalError, match="contains no run 'cccc'"):
        load(f"{path}#cccc")
    with pytest.raises(JournalError, match="does not exist"):
        load(f"{tmp_path}/other.csv#aaaa-1")


def test_rows_of_one_run_are_its_states(tmp_path):
    """CodeCarbon appends a cumulative row at each flush: only the longest one counts."""
    rows = [ROW | {"duration": 60.0 * n, "gpu_energy": 0.01 * n} for n in range(1, 6)]
    report = load(_write(tmp_path / "emissions.csv", rows))
    assert report.energy.gpu.energy_j == pytest.approx(0.05 * 3.6e6)
    assert report.run.duration_s == 300.0


def test_tasks_of_a_run_are_runs(tmp_path):
    """A file of tasks has a row for each, with the same ``run_id``; ``#TASK`` chooses one."""
    rows = [ROW | {"task_name": name} for name in ("load", "train")]
    rows[0] |= {"gpu_energy": 0.01, "duration": 9000.0}
    path = _write(tmp_path / "emissions_exp_aaaa-1.csv", rows)
    with pytest.raises(JournalError, match=r"contains 2 runs.*load \(resnet.*train \(resnet"):
        load(path)
    report = load(f"{path}#train")
    assert report.energy.gpu.energy_j == pytest.approx(0.25 * 3.6e6)
    assert report.run.name == "train"


def test_what_we_write_we_read(tmp_path):
    """A report written as emissions.csv and read again has the energy and emissions of the run."""
    write(tmp_path / "run", Attempt(config={"place": GERMANY, "pue": 1.5}))
    report = build(tmp_path / "run")
    emissions_csv.write(report, tmp_path / "emissions.csv")
    again = load(tmp_path / "emissions.csv")
    assert again.energy.gpu.energy_j == pytest.approx(report.energy.gpu.energy_j)
    assert again.energy.host.energy_j == pytest.approx(report.energy.host.energy_j)
    assert again.emissions.kg == pytest.approx(report.emissions.kg)
    assert again.run.started_unix_s == pytest.approx(report.run.started_unix_s, abs=86400.0)


def test_zero_of_a_card_is_not_known(tmp_path):
    """0 kWh of a card is unknown energy; without a card there is no device."""
    report = load(_write(tmp_path / "emissions.csv", [ROW | {"gpu_energy": 0.0}]))
    assert report.energy.gpu.energy_j is None
    assert {"energy_unknown", "sum_differs"} <= set(_codes(report))
    none = ROW | {"gpu_energy": 0.0, "gpu_model": "", "gpu_count": "", "energy_consumed": 0.15}
    report = load(_write(tmp_path / "emissions.csv", [none]))
    assert [device.kind for device in report.devices] == ["cpu", "dram"]
    report = load(_write(tmp_path / "emissions.csv", [ROW | {"cpu_energy": "", "ram_energy": ""}]))
    assert [device.kind for device in report.devices] == ["gpu"]
    assert report.energy.total.coverage == 1.0


@pytest.mark.parametrize("value", [*HOSTILE, "", "1e9"], ids=repr)
@pytest.mark.parametrize("field", ["gpu_energy", "duration", "pue", "energy_consumed", "emissions"])
def test_what_is_no_number_is_not_taken_for_one(tmp_path, field, value):
    """A row without a valid duration is skipped; of other invalid values, only the value is."""
    path = _write(tmp_path / "emissions.csv", [ROW | {"run_id": "other"}, ROW | {field: value}])
    if field == "duration":
        assert "damaged_lines" in _codes(load(path))
        return
    report = load(f"{path}#aaaa-1")
    assert report.energy.host.energy_j == pytest.approx(0.15 * 3.6e6)
    expected = None if field == "gpu_energy" else pytest.approx(0.25 * 3.6e6)
    assert report.energy.gpu.energy_j == expected


def test_a_country_that_is_none_is_an_unknown_place(tmp_path):
    """An unknown country is reported, and emissions are unknown."""
    report = load(_write(tmp_path / "emissions.csv", [ROW | {"country_iso_code": "XXX"}]))
    assert report.emissions.kg is None
    assert any("'XXX'" in warning.message for warning in report.warnings)


def test_a_row_that_was_cut_is_left_out(tmp_path):
    """A row that was cut is skipped; the complete row before it is read."""
    path = _write(tmp_path / "emissions.csv", [ROW, ROW | {"run_id": "bbbb-2"}])
    report = load(cut(path, lambda text: len(text) - 60))
    assert report.energy.gpu.energy_j == pytest.approx(0.25 * 3.6e6)
    assert "damaged_lines" in _codes(report)
    with pytest.raises(JournalError, match="contains no run"):
        load(_write(path, [ROW | {"duration": 1e9}]))
