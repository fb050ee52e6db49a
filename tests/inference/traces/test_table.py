"""Traces in this package's format."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from energy_callbacks.inference.records import Configuration, MeasuredWindow, Tenant
from energy_callbacks.inference.traces import append, read, write
from energy_callbacks.inference.traces.table import COLUMNS

TENANTS = (
    Tenant(model='a "quoted", name', share_pct=50.0, batch=16),
    Tenant(model="os:system", share_pct=12.5, batch=1),
)
WINDOW = MeasuredWindow(
    configuration=Configuration(tenants=TENANTS, sm_mhz=1500.0),
    source="simulated",
    mode="train",
    dataset="imagenet",
    steps=7,
    throughput_per_s=1 / 3,
    tenant_throughputs_per_s=(0.1, 0.2),
    power_mean_w=0.0,
    note="two\nlines",
)


def test_windows_are_read_as_they_were_written(tmp_path: Path) -> None:
    """All fields survive, unknown values stay unknown, and a measured zero stays zero."""
    oom = replace(WINDOW, status="oom", throughput_per_s=None, tenant_throughputs_per_s=())
    write(tmp_path / "trace.csv", [WINDOW, oom])
    assert read(tmp_path / "trace.csv") == [WINDOW, oom]


def test_rows_are_appended_one_by_one(tmp_path: Path) -> None:
    """Each row is on the disk when append returns, under one header."""
    path = tmp_path / "new" / "trace.csv"
    for count in (1, 2):
        append(path, WINDOW)
        assert read(path) == [WINDOW] * count


def test_nothing_is_appended_to_a_file_that_is_no_trace(tmp_path: Path) -> None:
    """A plan that is named by mistake stays as it is."""
    path = tmp_path / "plan.json"
    path.write_text('{"version": 1}')
    with pytest.raises(ValueError, match=r"plan\.json is no trace of version 1"):
        append(path, WINDOW)
    assert path.read_text() == '{"version": 1}'


@pytest.mark.parametrize(
    ("column", "text", "message"),
    [
        ("source", "", r"'' is not one of measured, simulated, imported"),
        ("share_pct", "__import__('os')", r".* is not a JSON list"),
        ("share_pct", "[50]", r"1 values for 2 tenants"),
        ("share_pct", "[50, 0]", r"0 is no share above 0"),
        ("share_pct", "[50, NaN]", r"nan is no share above 0"),
        ("batch", "[16, null]", r"None is no batch of at least 1"),
        ("power_mean_w", "many", r"'many' is not a number; leave the cell empty"),
        ("power_mean_w", "nan", r"'nan' is not a number"),
        ("schema_version", "9", "version 9 is unknown"),
        ("tenant_throughputs_per_s", "[5, null]", r"None is not a number"),
    ],
)
def test_errors_name_the_file_the_line_and_the_column(
    tmp_path: Path, column: str, text: str, message: str
) -> None:
    """A cell that is not valid is found; text in a list is never run."""
    path = tmp_path / "trace.csv"
    write(path, [WINDOW, replace(WINDOW, note="")])
    with path.open(newline="") as file:
        head, first, second = csv.reader(file)
    second[COLUMNS.index(column)] = text
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([head, first, second])
    with pytest.raises(ValueError, match=rf"trace.csv, line 4, column \d+ \({column}\): {message}"):
        read(path)
