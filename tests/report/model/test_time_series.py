"""The curves of a report as a table: CSV, data frame and Parquet."""

import csv
import io
import json
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from energy_callbacks.core.errors import MissingExtraError
from energy_callbacks.report import EnergyReport, save
from energy_callbacks.report.model.curves import Series
from energy_callbacks.report.model.time_series import as_csv

GPU = Series(
    key="gpu0",
    host="a",
    t_s=(1.0, 2.0),
    seen_s=(1.0, 0.0),
    power_w=(200.0, None),
    memory_bytes=(5.0, 6.0),
    utilisation=(0.5, 0.75),
)
CPU = Series(key="cpu0", host="a", t_s=(1.5,), seen_s=(1.5,), power_w=(0.0,), memory_bytes=(None,))


def test_a_row_is_a_device_at_a_time() -> None:
    """Unknown values are empty, a measured zero is 0, and absent curves are empty columns."""
    rows = list(csv.DictReader(io.StringIO(as_csv((GPU, CPU)))))
    assert [(row["key"], row["t_s"], row["power_w"]) for row in rows] == [
        ("gpu0", "1.0", "200.0"),
        ("gpu0", "2.0", ""),
        ("cpu0", "1.5", "0.0"),
    ]
    assert [row["utilisation"] for row in rows] == ["0.5", "0.75", ""]
    assert {row["temperature_c"] for row in rows} == {""}


def test_all_forms_have_the_same_values(report: EnergyReport, tmp_path: Path) -> None:
    """The energy below the curves of the data frame is the known energy of the report."""
    report = replace(report, series=(GPU, CPU, *report.series))
    table = report.to_dataframe()
    paths = save(report, tmp_path, ["csv", "parquet"])
    assert [path.name for path in paths] == [
        "energy_report_series.csv",
        "energy_report_series.parquet",
    ]
    pd.testing.assert_frame_equal(pd.read_csv(paths[0]), table, check_dtype=False)
    pd.testing.assert_frame_equal(pd.read_parquet(paths[1]), table)
    assert set(map(str, table.dtypes.drop(["key", "host"]))) == {"float64"}
    own = table.iloc[3:]
    known_j = report.energy.total.energy_j
    assert (own.power_w * own.seen_s).sum() == pytest.approx(known_j, rel=1e-3)


def test_a_report_without_curves_has_no_rows(report: EnergyReport) -> None:
    """The columns are there nevertheless."""
    empty = replace(report, series=())
    assert len(empty.to_dataframe()) == 0
    assert list(empty.to_dataframe().columns) == list(report.to_dataframe().columns)


@pytest.mark.parametrize("package", ["pandas", "pyarrow"])
def test_a_missing_package_names_the_extra(
    report: EnergyReport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    """CSV needs no package; Parquet needs pandas and PyArrow."""
    monkeypatch.setitem(sys.modules, package, None)
    save(report, tmp_path, ["csv"])
    with pytest.raises(MissingExtraError, match=r"\[dataframe\]"):
        save(report, tmp_path, ["parquet"])


def test_the_dictionary_is_the_json_file(report: EnergyReport, tmp_path: Path) -> None:
    """``to_dict`` has the values of ``energy_report.json``."""
    [path] = save(report, tmp_path, ["json"])
    assert report.to_dict() == json.loads(path.read_text())


def test_an_unknown_format_is_refused(report: EnergyReport, tmp_path: Path) -> None:
    """The message has all formats, and nothing is written."""
    with pytest.raises(
        ValueError, match="unknown format 'docx'; formats must be a list of html, json"
    ):
        save(report, tmp_path, ["json", "docx"])  # type: ignore[list-item]
    assert not list(tmp_path.iterdir())
