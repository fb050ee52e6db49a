"""Files of carbon intensities: which columns and times are understood, and what is refused."""

import math
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from energy_callbacks.accounting.grid.intensity_table import IntensityTable, read

HOUR_S = 3600.0
# The first hour of 2026, in seconds since 1970.
NEW_YEAR_S = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
# The header of an export of Electricity Maps (2025), and that of the exports before 2024.
EXPORT = (
    "Datetime (UTC),Country,Zone name,Zone id,Carbon intensity gCO₂eq/kWh (direct),"
    "Carbon intensity gCO₂eq/kWh (Life cycle),Carbon-free energy percentage (CFE%),"
    "Renewable energy percentage (RE%),Data source,Data estimated,Data estimation method"
)
OLD_EXPORT = (
    "Datetime (UTC),Country,Zone Name,Zone Id,Carbon Intensity gCO₂eq/kWh (direct),"
    "Carbon Intensity gCO₂eq/kWh (LCA),Low Carbon Percentage,Renewable Percentage,Data Source,"
    "Data Estimated,Data Estimation Method"
)


def table(folder: Path, *lines: str) -> IntensityTable:
    """The table in a file with these lines."""
    path = folder / "hourly.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return read(path)


def plain(folder: Path, *rows: str) -> IntensityTable:
    """The table in a file with the columns time and intensity."""
    return table(folder, "time,intensity", *rows)


def g_per_kwh(found: IntensityTable, hours: float) -> float | None:
    """Intensity so many hours after the beginning of 2026."""
    row, _ = found.at(NEW_YEAR_S + hours * HOUR_S)
    return None if row is None else row.kg_per_kwh * 1e3


@pytest.mark.parametrize("header", [EXPORT, OLD_EXPORT])
def test_an_export_of_electricity_maps_is_read(tmp_path: Path, header: str) -> None:
    """Its times are UTC; life-cycle emissions are used, and the report says so."""
    found = table(
        tmp_path,
        header,
        "2026-01-01 00:00:00,Germany,Germany,DE,310.5,362.25,50,45,entsoe.eu,false,",
        "2026-01-01 01:00:00,Germany,Germany,DE,290,340,50,45,entsoe.eu,true,TSA",
    )
    assert [g_per_kwh(found, hours) for hours in (0, 0.99, 1, 1.99)] == [362.25, 362.25, 340, 340]
    assert found.zone == "Germany"
    assert found.source == "hourly.csv (life cycle)"


def test_direct_emissions_are_used_if_the_file_has_no_others(tmp_path: Path) -> None:
    """The report says that they are direct emissions only."""
    header = EXPORT.replace("Carbon intensity gCO₂eq/kWh (Life cycle)", "Other")
    rows = (f"2026-01-01 0{hour}:00:00,,,,5,,,,,," for hour in (0, 1))
    found = table(tmp_path, header, *rows)
    assert g_per_kwh(found, 0) == 5
    assert found.source == "hourly.csv (direct emissions only)"


@pytest.mark.parametrize(
    "header",
    [
        "Time,Intensity",
        "timestamp,carbon_intensity_avg",
        "datetime,carbonIntensity",
        "\ufefftime,intensity",
    ],
)
def test_plain_columns_are_read(tmp_path: Path, header: str) -> None:
    """Case does not matter, nor does a byte order mark; times may have any time zone."""
    rows = ("2026-01-01T01:00+01:00,100", "2026-01-01T01:00Z,200", "2025-12-31T21:00-05:00,300")
    found = table(tmp_path, header, *rows)
    assert [g_per_kwh(found, hours) for hours in (0.5, 1.5, 2.5)] == [100, 200, 300]
    assert found.source == "hourly.csv"


def test_times_without_a_row_are_gaps(tmp_path: Path) -> None:
    """Before the first row, after the last, in a missing hour, and where the cell is empty."""
    hours_of_rows = ("00", "01", "04", "05", "06", "07")
    values = ("1", "2", "3", "", "4", "5")
    rows = (
        f"2026-01-01T{hour}:00Z,{value}" for hour, value in zip(hours_of_rows, values, strict=True)
    )
    found = plain(tmp_path, *rows)
    expected = {-0.1: None, 0: 1, 1.9: 2, 2: None, 3.9: None, 4: 3, 5: None, 6: 4, 7.9: 5, 8: None}
    assert {hours: g_per_kwh(found, hours) for hours in expected} == expected
    ends = [found.at(NEW_YEAR_S + hours * HOUR_S)[1] for hours in (-1, 0.5, 2, 3, 5, 8)]
    assert [(end - NEW_YEAR_S) / HOUR_S for end in ends] == [0, 1, 4, 4, 6, math.inf]


def test_rows_of_months_have_no_gaps(tmp_path: Path) -> None:
    """Months differ in length; the last one has the usual length."""
    rows = [f"2026-{month:02}-01T00:00Z,{month}" for month in range(1, 13)]
    found = plain(tmp_path, *rows)
    for day in range(360):
        at = datetime.fromtimestamp(NEW_YEAR_S + day * 24 * HOUR_S, tz=UTC)
        assert g_per_kwh(found, day * 24) == at.month


WRONG = [
    (["time,intensity", "2026-01-01T00:00Z,1", "2026-01-01T01:00Z,n/a"],
     r"hourly.csv, line 3, column 2 \(intensity\): 'n/a' is not a number; leave the cell empty"),
    (["time,intensity", "2026-01-01T00:00Z,-1"], r"line 2, column 2 .* between 0 and 3000 .* '-1'"),
    (["time,intensity", "2026-01-01T00:00Z,nan"], r"line 2, column 2 .* between 0 and 3000"),
    (["time,intensity", "2026-01-01T00:00Z,9e9"], r"line 2, column 2 .* got '9e9'"),
    (["x,intensity,time", "", ",5,01.02.2026"],
     r"line 3, column 3 \(time\): '01.02.2026' is not a time; write 2026-01-31T13:00Z"),
    (["time,intensity", "2026-01-01 00:00,5"],
     r"line 2, column 1 \(time\): '2026-01-01 00:00' has no time zone; .*or name the column 'time"),
    (["time,intensity", "2026-01-01T01:00Z,1", "2026-01-01T00:00Z,1"],
     r"line 3, column 1 .*'2026-01-01T00:00Z' is not later than the time in the line before"),
    (["time,zone,intensity", "2026-01-01T01:00Z,DE,1", "2026-01-01T02:00Z,FR,1"],
     r"line 3, column 2 \(zone\): the file has several zones \(DE and FR\); keep the rows"),
    (["time,intensity", "2026-01-01T01:00Z"], r"line 2, column 2 \(intensity\): the line ends"),
    (["time;intensity"], r"line 1: no column has times, got 'time;intensity'; .*with ',' between"),
    (["time,power"], r"line 1: no column has carbon intensities, got 'time,power'; .*'intensity'"),
    ([""], r"line 1: no column has times"),
    (["time,intensity", "2026-01-01T01:00Z,1"], r"needs at least two rows, got 1"),
]  # fmt: skip


@pytest.mark.parametrize(("lines", "message"), WRONG)
def test_a_wrong_file_is_refused_with_line_and_column(
    tmp_path: Path, lines: list[str], message: str
) -> None:
    """The message also names the file and the value."""
    with pytest.raises(ValueError, match=message):
        table(tmp_path, *lines)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    """A missing file, a folder, and a file that is no text."""
    with pytest.raises(ValueError, match=r"cannot be read: .*; pass a number in gCO2e/kWh or"):
        read(tmp_path / "missing.csv")
    with pytest.raises(
        ValueError, match=re.escape(f"cannot be read: [Errno 21] Is a directory: '{tmp_path}'")
    ):
        read(tmp_path)
    (tmp_path / "binary.csv").write_bytes(b"time,intensity\n\xff\xfe,1\n")
    with pytest.raises(ValueError, match=r"binary.csv is not encoded in UTF-8"):
        read(tmp_path / "binary.csv")
    (tmp_path / "quote.csv").write_text('time,intensity\n2026-01-01T00:00Z,"1\n' + 200_000 * "x")
    with pytest.raises(ValueError, match=r"quote.csv is not a CSV file: field larger than"):
        read(tmp_path / "quote.csv")


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    """Files are cached; a change of the file is noticed."""
    rows = ("2026-01-01T00:00Z,1", "2026-01-01T01:00Z,2")
    assert g_per_kwh(plain(tmp_path, *rows), 0) == 1
    assert plain(tmp_path, *rows, "2026-01-01T02:00Z,30").rows[-1].kg_per_kwh == 0.03
