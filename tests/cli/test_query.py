"""Tests of ``energy-callbacks query`` through its command line."""

import csv
import io
import json
from typing import get_args

import pytest

from energy_callbacks.cli import main
from energy_callbacks.query import QueryAnswer, Skipped
from energy_callbacks.query.locations import Why
from energy_callbacks.report import build, save
from tests.report.journals import Attempt, write


@pytest.fixture
def runs(tmp_path):
    """Write two reports; the name of one contains an escape sequence."""
    for name in ("plain", "e\x1b[2Jvil, [red]"):
        folder = tmp_path / name[:1]
        write(folder, Attempt(run_name=name, run_id=name[:1]))
        save(build(folder), folder, ["json"])
    return str(tmp_path)


SQL = "select name, total_wh, started, tags, error from reports order by name desc"


def test_a_table_for_people(runs, capsys):
    """Without a terminal the table is plain text, without control characters."""
    assert main(["query", SQL, runs]) == 0
    captured = capsys.readouterr()
    head, first, second = captured.out.splitlines()
    assert head.split() == ["name", "total_wh", "started", "tags", "error"]
    assert first.split()[0] == "plain"
    assert first.split()[-1] == "-"
    assert "\x1b" not in second
    assert captured.err == ""


def test_csv_and_json_hold_the_values(runs, capsys):
    """CSV and JSON have the same rows."""
    assert main(["query", SQL, runs, "--csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert main(["query", SQL, runs, "--json"]) == 0
    objects = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == [one["name"] for one in objects]
    assert objects[0]["name"] == "plain"
    assert float(rows[0]["total_wh"]) == objects[0]["total_wh"]
    assert objects[0]["started"] == rows[0]["started"] == "2026-09-21T14:13:20"
    assert (rows[0]["error"], objects[0]["error"]) == ("", None)


def test_json_without_rows_is_an_empty_array(runs, capsys):
    """Without rows JSON is an empty array; NaN is null."""
    assert main(["query", "select name from reports where false", runs, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert main(["query", "select 'nan'::double as x", runs, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"x": None}]


def test_decimals_are_numbers(runs, capsys):
    """DuckDB's decimals are numbers in JSON, and rounded in tables."""
    sql = "select 0.5 as half, [0.25] as list, 1234.56789 as long"
    assert main(["query", sql, runs, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [
        {"half": 0.5, "list": [0.25], "long": 1234.56789}
    ]
    assert main(["query", sql, runs]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["0.5", "[0.25]", "1234.57"]


def test_json_has_all_columns_of_the_same_name(runs, capsys):
    """Names that occur again get a number; CSV keeps them."""
    sql = "select 1 as a, 2 as a, 3 as a_1, 4 as a"
    assert main(["query", sql, runs, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"a": 1, "a_1": 2, "a_1_1": 3, "a_2": 4}]
    assert main(["query", sql, runs, "--csv"]) == 0
    assert capsys.readouterr().out == "a,a,a_1,a\n1,2,3,4\n"


def test_what_was_left_out_is_told_beside_the_answer(runs, tmp_path, capsys):
    """Standard error counts and names the runs left out; standard output has only the answer."""
    (tmp_path / "p/energy_report.json").write_text("{")
    assert main(["query", "select count(*) as n from reports", runs, "--csv"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "n\n1\n"
    assert "1 reports read, 1 runs skipped" in captured.err
    assert "p/energy_report.json" in captured.err


def test_what_is_no_run_is_not_counted_as_one(runs, tmp_path, capsys, monkeypatch):
    """Reports that are read in part, and folders that cannot be listed, have their own numbers."""
    skipped = [
        Skipped("a", "partly read", "phases"), Skipped("a", "partly read", "devices"),
        Skipped("b", "not listed", "denied"), Skipped("c", "only page", "no report"),
    ]  # fmt: skip
    for some, expected in (
        (skipped, "2 reports read (1 of them in part), 1 runs skipped, 1 folders not listed; "),
        (skipped[2:3], "2 reports read, 1 folders not listed; "),
    ):
        answer = QueryAnswer(columns=("n",), rows=[(2,)], reports=2, skipped=tuple(some))
        monkeypatch.setattr("energy_callbacks.cli.query.query", lambda *_, it=answer: it)
        assert main(["query", "select count(*) as n from reports", runs, "--csv"]) == 0
        assert expected in capsys.readouterr().err


def test_columns_are_listed(capsys):
    """Every table is listed with its columns, without a folder; also as JSON."""
    assert main(["query", "--columns"]) == 0
    out = capsys.readouterr().out
    for word in (
        "reports: ",
        "phases: ",
        "total_wh",
        "job_id",
        "skipped: ",
        "of the report or folder",
    ):
        assert word in out
    for why in get_args(Why):
        assert why in out
    assert main(["query", "--columns", "--json"]) == 0
    assert "total_wh" in json.loads(capsys.readouterr().out)["reports"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["choose name"], "syntax error"),
        (["select nothing from reports"], "nothing"),
        (["drop table reports"], "one SELECT"),
        (["copy reports to 'x'"], "one SELECT"),
    ],
)
def test_wrong_sql_ends_with_2(runs, capsys, arguments, words):
    """The message is that of the database, and standard output is empty."""
    assert main(["query", *arguments, runs]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert words in captured.err


def test_without_sql_or_a_folder(tmp_path, capsys):
    """The message says what to type, also for a missing folder and one without reports."""
    assert main(["query"]) == 2
    assert "--columns" in capsys.readouterr().err
    assert main(["query", "select 1", str(tmp_path)]) == 2
    assert "no energy_report.json" in capsys.readouterr().err
    assert main(["query", "select 1", str(tmp_path / "x")]) == 2
    assert "does not exist" in capsys.readouterr().err


def test_without_duckdb_it_says_what_to_install(runs, capsys, monkeypatch):
    """The message names the extra."""
    monkeypatch.setitem(__import__("sys").modules, "duckdb", None)
    assert main(["query", "select 1", runs]) == 1
    assert "[query]" in capsys.readouterr().err
