"""Tests of the CSV of nvidia-smi."""

from datetime import timedelta

import pytest

from energy_callbacks.core.errors import JournalError
from energy_callbacks.report import load
from tests.importers.logs import MIB, START, cut, smi, smi_time, times

ALL = (
    "timestamp, index, uuid, name, power.draw [W], utilization.gpu [%], memory.used [MiB], "
    "memory.total [MiB], temperature.gpu, clocks.current.sm [MHz], power.limit [W]"
)


def _codes(report):
    return [warning.code for warning in report.warnings]


def _row(at, power="250.00 W"):
    return f"{smi_time(at)}, {power}"


def test_two_columns_are_enough(tmp_path):
    """Time and power are enough: one sample every 100 ms for 20 s at 250 W is 5 kJ."""
    report = load(smi(tmp_path / "gpu.csv", map(_row, times(201, 0.1))))
    assert report.energy.gpu.energy_j == pytest.approx(5000.0)
    assert report.run.duration_s == pytest.approx(20.0)
    assert report.devices[0].mean_power_w == pytest.approx(250.0)
    assert report.run.framework == "log of nvidia-smi"


@pytest.mark.parametrize("units", [True, False])
def test_cards_are_told_apart_by_what_names_them(tmp_path, units):
    """Two cards have their own energy, memory and name, with and without units."""
    w, percent, mib, mhz = (" W", " %", " MiB", " MHz") if units else ("", "", "", "")
    rows = [
        f"{smi_time(at)}, {card}, GPU-{card}, NVIDIA H200, {100 * (card + 1)}.00{w}, 97{percent}, "
        f"{1000 + card}{mib}, 143771{mib}, 51, 1980{mhz}, 700.00{w}"
        for at in times(21, 1.0)
        for card in (2, 3)
    ]
    report = load(smi(tmp_path / "gpu.csv", rows, ALL))
    assert [d.energy.energy_j for d in report.devices] == [
        pytest.approx(20 * w) for w in (300, 400)
    ]
    assert [d.uuid for d in report.devices] == ["GPU-2", "GPU-3"]
    card = report.devices[1]
    assert (card.name, card.memory_peak_bytes) == ("NVIDIA H200", 1003 * MIB)
    assert (card.utilisation_mean, card.temperature_max_c) == (pytest.approx(0.97), 51.0)


@pytest.mark.parametrize("cards", [2, 8])
def test_cards_that_nothing_tells_apart_are_refused(tmp_path, cards):
    """Rows of several cards without an identifier are refused."""
    rows = [
        _row(at + timedelta(milliseconds=2 * card), f"{100 * (card + 1)} W")
        for at in times(30, 1.0)
        for card in range(cards)
    ]
    with pytest.raises(JournalError, match="add index or uuid to the query"):
        load(smi(tmp_path / "gpu.csv", rows))


def test_one_card_with_pauses_is_not_taken_for_several(tmp_path):
    """Pauses between samples of one card do not make it several cards."""
    at = [t for t in times(600, 0.1) if (t - START).total_seconds() % 7.0 < 4.0]
    assert load(smi(tmp_path / "gpu.csv", map(_row, at))).energy.gpu.energy_j > 0.0


def test_a_file_that_was_cut_loses_the_line_that_was(tmp_path):
    """A last line without a line end is skipped, because its number may be cut."""
    path = smi(tmp_path / "gpu.csv", map(_row, times(21, 1.0)))
    report = load(cut(path, lambda text: len(text) - len("0.00 W\n")))
    assert report.energy.gpu.energy_j == pytest.approx(250.0 * 19)
    assert "log_cut_off" in _codes(report)


@pytest.mark.parametrize(
    "power", ["[N/A]", "[Not Supported]", "nan", "-250.00 W", "1e300", "inf", "", "9" * 5000]
)
def test_what_is_no_power_is_left_out(tmp_path, power):
    """A sample without valid power is bridged and reported."""
    rows = [_row(at) for at in times(21, 1.0)]
    rows[10] = _row(times(21, 1.0)[10], power)
    report = load(smi(tmp_path / "gpu.csv", rows))
    assert report.energy.gpu.energy_j == pytest.approx(250.0 * 20)
    assert "unusable_power" in _codes(report)


def test_lines_that_are_none_are_counted(tmp_path):
    """Lines with too few cells, without a time, of 5 MB and of zeros are counted and skipped."""
    rows = [_row(at) for at in times(21, 1.0)]
    rows[5:5] = ["only one", "soon, 250 W", "x" * 5_000_000, "\0\0\0, \0"]
    report = load(smi(tmp_path / "gpu.csv", rows))
    assert report.energy.gpu.energy_j == pytest.approx(250.0 * 20)
    [said] = [one.message for one in report.warnings if one.code == "damaged_lines"]
    assert said.startswith("4 damaged")


def test_a_clock_that_goes_back_and_a_gap_are_said(tmp_path):
    """A clock that was set back and a gap of a minute are reported."""
    at = times(31, 1.0)
    moved = [t - timedelta(seconds=30.0) for t in at[11:21]]
    moved += [t + timedelta(seconds=30.0) for t in at[21:]]
    report = load(smi(tmp_path / "gpu.csv", map(_row, at[:11] + moved)))
    assert report.energy.gpu.energy_j == pytest.approx(250.0 * 28)
    assert {"log_clock", "gaps"} <= set(_codes(report))


def test_a_file_of_powershell_is_read(tmp_path):
    """UTF-16 with a byte order mark, which ``>`` of PowerShell writes, is read."""
    path = smi(tmp_path / "gpu.csv", map(_row, times(21, 1.0)))
    path.write_bytes(path.read_text().encode("utf-16"))
    assert load(path).energy.gpu.energy_j == pytest.approx(5000.0)


def test_without_names_of_columns_it_is_refused(tmp_path):
    """A file written with ``noheader`` is refused, because its columns are not known."""
    path = smi(tmp_path / "gpu.csv", map(_row, times(5, 1.0)), _row(START))
    with pytest.raises(JournalError, match="noheader"):
        load(path)


def test_256_mib_without_a_line_are_passed_over(tmp_path):
    """256 MiB of zeros behind 21 samples are skipped."""
    path = smi(tmp_path / "gpu.csv", map(_row, times(21, 1.0)))
    with path.open("r+b") as file:
        file.truncate(2**28)
    report = load(path)
    assert report.energy.gpu.energy_j == pytest.approx(5000.0)
