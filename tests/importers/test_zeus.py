"""Tests of the CSV files of Zeus: windows, power, and the table of trainings."""

import math

import pytest

from energy_callbacks.core.errors import JournalError
from energy_callbacks.report import load
from tests.importers.logs import cut

ZERO_S = 1_795_000_000.0
TABLE = "dataset,network,batch_size,optimizer,power_limit,time_per_epoch,average_power"


def _codes(report):
    return [warning.code for warning in report.warnings]


def _windows(path, rows, cards=1):
    names = ",".join(f"gpu{card}_energy" for card in range(cards))
    lines = [
        ",".join(map(str, (ZERO_S + start_s, name, duration_s, *energies)))
        for start_s, name, duration_s, *energies in rows
    ]
    path.write_text(f"start_time,window_name,elapsed_time,{names}\n" + "\n".join(lines) + "\n")
    return path


def _phases(report):
    return {phase.name: (phase.duration_s, phase.gpu.energy_j) for phase in report.phases}


def test_windows_are_phases(tmp_path):
    """Windows become phases; the energy of a pause between them is unknown."""
    rows = [
        (0.0, "epoch_1", 50.0, 10_000.0, 5_000.0),
        (50.0, "eval", 10.0, 1_000.0, 500.0),
        (65.0, "epoch_2", 35.0, 7_000.0, 3_500.0),
    ]
    report = load(_windows(tmp_path / "zeus.csv", rows, cards=2))
    assert report.energy.gpu.energy_j == pytest.approx(27_000.0)
    assert report.energy.gpu.coverage == pytest.approx(0.95)
    assert report.energy.gpu.systematic_j == pytest.approx(0.05 * 27_000.0)
    phases = _phases(report)
    assert phases["epoch"] == (pytest.approx(85.0), pytest.approx(25_500.0))
    assert phases["eval"] == (pytest.approx(10.0), pytest.approx(1_500.0))
    assert phases["not recorded"] == (pytest.approx(5.0), None)
    assert "gaps" in _codes(report)


def test_the_ticks_of_the_counter_are_errors_from_edges(tmp_path):
    """Windows with pauses add up linearly; windows that follow each other share their edges."""
    edge_j = 1.96 * 100.0 * 0.1 / math.sqrt(6.0)
    apart = [(20.0 * n, f"step{n}", 10.0, 1000.0) for n in range(10)]
    report = load(_windows(tmp_path / "apart.csv", apart))
    assert report.energy.gpu.edge_j == pytest.approx(10 * edge_j)
    assert [phase.gpu.edge_j for phase in report.phases if phase.name == "step"] == [
        pytest.approx(10 * edge_j)
    ]
    for pause_s in (0.0, 1e-4):
        joined = [((10.0 + pause_s) * n, f"step{n}", 10.0, 1000.0) for n in range(10)]
        report = load(_windows(tmp_path / f"joined{pause_s}.csv", joined))
        (phase,) = report.phases
        assert phase.gpu.edge_j == pytest.approx(math.sqrt(2.0) * edge_j, rel=1e-4)
        assert report.energy.gpu.edge_j == pytest.approx(math.sqrt(2.0) * edge_j, rel=1e-4)


def test_windows_inside_a_window_are_taken_out_of_it(tmp_path):
    """Steps and the rest add up to their epoch; windows two levels deep are left out."""
    steps = [(10.0 * n, f"step{n}", 8.0, 1000.0) for n in range(10)]
    rows = [*steps, (3.0, "forward", 1.0, 100.0), (0.0, "epoch", 100.0, 12_000.0)]
    report = load(_windows(tmp_path / "zeus.csv", rows))
    assert report.energy.gpu.energy_j == pytest.approx(12_000.0)
    phases = _phases(report)
    assert phases["step"] == (pytest.approx(80.0), pytest.approx(10_000.0))
    assert phases["epoch"] == (pytest.approx(20.0), pytest.approx(2_000.0))
    assert "windows_aside" in _codes(report)


def test_a_window_shorter_than_a_tick_is_not_known(tmp_path):
    """Zeus writes 0 J for a window shorter than a tick, whose energy is unknown."""
    rows = [(0.0, "a", 10.0, 1000.0), (10.0, "b", 0.05, 0.0)]
    report = load(_windows(tmp_path / "zeus.csv", rows))
    assert report.energy.gpu.energy_j == pytest.approx(1000.0)
    assert report.energy.gpu.coverage == pytest.approx(10.0 / 10.05)


@pytest.mark.parametrize("energy", ["nan", "-5.0", "soon", "", "inf"])
def test_windows_with_what_is_no_energy(tmp_path, energy):
    """The time of windows without valid energy is not covered."""
    rows = [(0.0, "a", 10.0, 1000.0), (10.0, "a", 10.0, energy)]
    report = load(_windows(tmp_path / "zeus.csv", rows))
    assert report.energy.gpu.energy_j == pytest.approx(1000.0)
    assert report.energy.gpu.coverage == pytest.approx(0.5)


def test_windows_of_no_time_and_files_that_were_cut(tmp_path):
    """Invalid times are damage; a file with nothing else is refused."""
    rows = [(0.0, "a", 10.0, 1000.0), (10.0, "a", "nan", 5.0), (20.0, "a", -1.0, 5.0)]
    rows.append((1e24, "a", 10.0, 5.0))
    path = _windows(tmp_path / "zeus.csv", [*rows, (30.0, "a", 10.0, 1000.0)])
    report = load(cut(path, lambda text: text.rindex(",1000.0")))
    assert report.energy.gpu.energy_j == pytest.approx(1000.0)
    [said] = [one.message for one in report.warnings if one.code == "damaged_lines"]
    assert said.startswith("4 damaged")
    with pytest.raises(JournalError, match="no complete window"):
        load(_windows(path, rows[1:]))


def _power(path, rows, head=""):
    path.write_text(head + "".join(",".join(map(str, row)) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("head", ["", "time,power2,power5\n"])
def test_power_is_integrated_for_each_card(tmp_path, head):
    """The power of two cards is integrated, with and without column names."""
    rows = [(ZERO_S + n / 10, 100.0, 200.0) for n in range(101)]
    report = load(_power(tmp_path / "power.csv", rows, head))
    assert report.energy.gpu.energy_j == pytest.approx(3000.0)
    keys = ["gpu2", "gpu5"] if head else ["gpu0", "gpu1"]
    assert [device.key for device in report.devices] == keys
    assert report.run.started_unix_s == ZERO_S


def test_power_with_a_gap_a_clock_that_goes_back_and_no_numbers(tmp_path):
    """Gaps, clock steps, invalid values and a cut line are reported and left out."""
    rows = [(ZERO_S + n / 10, 100.0) for n in range(101)]
    rows += [(ZERO_S + 20.0 + n / 10, 100.0) for n in range(101)]
    rows += [(ZERO_S + 5.0 + n / 10, 100.0) for n in range(101)]
    rows[3:3] = [(ZERO_S, "nan"), ("nan", 5.0), ("soon",), (ZERO_S, 1, 2), (1e24, 5.0)]
    path = cut(_power(tmp_path / "power.csv", rows), lambda text: len(text) - 3)
    report = load(path)
    assert report.energy.gpu.energy_j == pytest.approx(100.0 * 29.9, rel=1e-3)
    codes = {"gaps", "log_clock", "damaged_lines", "unusable_power", "log_cut_off"}
    assert codes <= set(_codes(report))


def test_a_row_of_the_table_is_an_epoch(tmp_path):
    """12.5 s at 160 W are 2 kJ; a row is chosen by its number, and its settings are tags."""
    path = tmp_path / "summary_power.csv"
    path.write_text(
        f"{TABLE}\ncifar100,resnet,128,adam,100,20.0,100.0\ncifar100,resnet,128,adam,200,12.5,160\n"
    )
    with pytest.raises(JournalError, match=r"contains 2 runs.*they are 1 \(cifar100"):
        load(path)
    report = load(f"{path}#2")
    assert report.energy.gpu.energy_j == pytest.approx(2000.0)
    assert (report.run.duration_s, report.run.tags["power_limit"]) == (12.5, "200")
    assert [phase.name for phase in report.phases] == ["train"]


@pytest.mark.parametrize(
    "row", ["a,b,1,c,100,nan,5", "a,b,1,c,100,-5,5", "a,b,1,c,100,5,1e300", "a"]
)
def test_rows_of_the_table_that_are_none(tmp_path, row):
    """Rows without a valid time and power are skipped."""
    path = tmp_path / "summary.csv"
    path.write_text(f"{TABLE}\n{row}\ncifar100,resnet,128,adam,200,12.5,160\n")
    report = load(path)
    assert report.energy.gpu.energy_j == pytest.approx(2000.0)
    assert "damaged_lines" in _codes(report)
