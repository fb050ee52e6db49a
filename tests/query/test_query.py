"""SQL over reports: values equal those of the reports, and the SQL can only read them."""

import json
import os
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from energy_callbacks.accounting.journal.batch_job import Job
from energy_callbacks.core.errors import JournalError
from energy_callbacks.query import TABLES, QueryError, _asked, locations, query, tables
from energy_callbacks.query.columns import REPORTS
from energy_callbacks.query.locations import place_of
from energy_callbacks.report import build, load, save
from energy_callbacks.report.model import schema
from tests.report.journals import GERMANY, Attempt, write

SAMPLES = Path(__file__).parents[1] / "report" / "samples"
LOSSES = ((10.0, 2.0), (30.0, 0.5), (60.0, 1.0))
METRICS = [(t_s, {"loss": loss}, i, None) for i, (t_s, loss) in enumerate(LOSSES, start=1)]


def saved(folder, formats=("json",), **facts):
    """Writes a run with its report; returns the report."""
    defaults = {"config": {"place": GERMANY, "price_per_kwh": 0.3}, "metrics": METRICS}
    write(folder, Attempt(**(defaults | facts)))
    report = build(folder)
    save(report, folder, formats)
    return report


def one(sql, place):
    """Returns the only row of an answer by column name."""
    answer = query(sql, place)
    assert answer.skipped == ()
    (row,) = answer.rows
    return dict(zip(answer.columns, row, strict=True))


@pytest.fixture
def runs(tmp_path):
    """A folder with three runs; one is nested and has a job and tags."""
    return three(tmp_path)


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory):
    """The same folder, shared by tests that only read."""
    return three(tmp_path_factory.mktemp("runs"))


def three(folder):
    """Writes the three runs."""
    saved(folder / "a", run_name="a", run_id="a")
    saved(folder / "b", run_name="b", run_id="b", relative_error=0.02)
    job = Job(system="slurm", id="77", name="train", queue="gpu")
    saved(folder / "team/c", run_name="c", run_id="c", job=asdict(job), tags={"team": "vision"})
    return folder


def test_a_row_is_the_report(tmp_path):
    """A row has the figures of the report, in the units of the column names."""
    report = saved(tmp_path / "run", tags={"team": "vision"})
    row = one("select * from reports", tmp_path)
    assert row["path"] == str(tmp_path / "run/energy_report.json")
    assert (row["run_id"], row["name"], row["status"]) == ("run-a", "resnet", "finished")
    assert row["started"].timestamp() == pytest.approx(
        report.run.started_unix_s - row["started"].astimezone().utcoffset().total_seconds()
    )
    for scope in ("gpu", "host", "total"):
        figure = getattr(report.energy, scope)
        assert row[f"{scope}_wh"] == pytest.approx(figure.energy_j / 3600)
        assert row[f"{scope}_error_wh"] == pytest.approx(figure.error_j / 3600)
        assert row[f"{scope}_origin"] == figure.origin
    assert row["emissions_g"] == pytest.approx(1000 * report.emissions.kg)
    assert (row["place"], row["host"]) == ("Germany", "node1")
    assert row["cost"] == pytest.approx(report.cost.amount)
    ratio = report.efficiency.gpu.j_per_sample
    assert row["gpu_j_per_sample"] == ratio.value_j
    assert (row["gpu_j_per_sample_low"], row["gpu_j_per_sample_high"]) == (
        ratio.low_j,
        ratio.high_j,
    )
    assert row["gpu_j_per_token"] is None
    assert (row["steps"], row["samples"]) == (report.throughput.steps, report.throughput.samples)
    assert row["device_peak_bytes"] == report.memory.device_used_peak_bytes
    assert json.loads(row["tags"]) == {"team": "vision"}


def test_the_error_contains_edges_and_reads_reports_without_them(tmp_path):
    """Noise and edges add in quadrature; reports of earlier versions have no ``edge_j``."""
    report = saved(tmp_path / "run", edge_j=30.0)
    assert report.energy.gpu.edge_j == 30.0
    row = one("select gpu_error_wh from reports", tmp_path)
    assert row["gpu_error_wh"] == pytest.approx(report.energy.gpu.error_j / 3600)
    path = tmp_path / "run/energy_report.json"
    old = json.loads(path.read_text())
    del old["energy"]["gpu"]["edge_j"]
    path.write_text(json.dumps(old))
    row = one("select gpu_error_wh from reports", tmp_path)
    assert row["gpu_error_wh"] == pytest.approx(
        replace(report.energy.gpu, edge_j=0.0).error_j / 3600
    )


def test_questions_over_several_runs(runs):
    """Sums, tags and jobs cover reports at any depth."""
    row = one("select count(*) as n, sum(total_wh) as wh, count(job_id) as jobs from reports", runs)
    known = [load(path).energy.total.energy_j for path in runs.rglob("energy_report.json")]
    assert (row["n"], row["jobs"]) == (3, 1)
    assert row["wh"] == pytest.approx(sum(known) / 3600)
    named = one("select name, job_queue from reports where tags->>'team' = 'vision'", runs)
    assert named == {"name": "c", "job_queue": "gpu"}


def test_phases_devices_and_metrics(tmp_path):
    """Lists of the report are tables, joined by the path."""
    report = saved(tmp_path)
    phases = query("select phase, total_wh from phases order by total_wh", tmp_path).rows
    expected = [(phase.name, phase.total.energy_j / 3600) for phase in report.phases]
    assert phases == [pytest.approx(pair) for pair in sorted(expected, key=lambda pair: pair[1])]
    device = one("select * from devices where kind = 'gpu'", tmp_path)
    assert (device["device"], device["host"]) == ("NVIDIA H200", "node1")
    assert device["peak_power_w"] == report.devices[0].peak_power_w
    metric = one("select m.*, r.name from metrics m join reports r using (path)", tmp_path)
    assert (metric["metric"], metric["name"]) == ("loss", "resnet")
    assert (metric["last"], metric["lowest"], metric["highest"]) == (1.0, 0.5, 2.0)
    assert metric["last_step"] == 3
    assert metric["last_wh"] == pytest.approx(report.metrics[0].energy_j[-1] / 3600)


def test_what_is_no_report_is_named_and_counted(runs):
    """Damaged, truncated, newer, foreign and missing reports are in the table ``skipped``."""
    whole = (runs / "a/energy_report.json").read_text()
    bad = {
        "cut": whole[: len(whole) // 2],
        "cut-early": whole[:700],
        "empty": "",
        "word": whole.replace('"duration_s": 80.0', '"duration_s": "80"x', 1),
        "no-run": whole.replace('"run": ', '"walk": ', 1),
        "newer": whole.replace('"schema_version": 1', '"schema_version": 2', 1),
        "foreign": '{"a": 1}',
        "kind": whole.replace('"status": "finished"', '"status": {}', 1),
    }
    for name, text in bad.items():
        assert text != whole
        (runs / name).mkdir()
        (runs / name / "energy_report.json").write_text(text)
    saved(runs / "page", ("json", "html"), run_id="page")
    (runs / "page/energy_report.json").unlink()
    write(runs / "journal", Attempt(run_id="journal"))
    answer = query("select why, path, message from skipped", runs)
    assert answer.reports == 3
    found = {(why, path.removeprefix(f"{runs}/")) for why, path, _ in answer.rows}
    assert found == {
        *(("not read", f"{name}/energy_report.json") for name in bad),
        ("only page", "page"),
        ("only journals", "journal"),
    }
    assert {(one.why, one.path, one.message) for one in answer.skipped} == set(answer.rows)
    messages = {
        path.split("/")[-2]: message for why, path, message in answer.rows if "json" in path
    }
    assert "schema version 2" in messages["newer"]
    assert "run.status" in messages["kind"]
    for fix in ("energy-callbacks report", "page/energy_report.html"):
        assert any(fix in message for _, _, message in answer.rows)


def test_a_damaged_list_takes_its_report_out_of_that_table(tmp_path):
    """A report with text in place of a number is skipped in that table."""
    saved(tmp_path / "good", run_id="good")
    report = saved(tmp_path / "bad", run_id="bad")
    path = tmp_path / "bad/energy_report.json"
    value = json.loads(schema.to_json(report))
    value["phases"][1]["share"] = "much"
    path.write_text(as_we_write(value))
    answer = query("select distinct path from phases", tmp_path)
    assert answer.rows == [(str(tmp_path / "good/energy_report.json"),)]
    (skipped,) = answer.skipped
    assert (skipped.path, skipped.why) == (str(path), "partly read")
    assert "phases" in skipped.message


@pytest.mark.parametrize("element", ["abc", None])
def test_an_element_of_another_type_ends_no_query(tmp_path, element):
    """Its report is skipped in that table, and the others are read."""
    saved(tmp_path / "good", run_id="good")
    value = json.loads(schema.to_json(saved(tmp_path / "bad", run_id="bad")))
    path = tmp_path / "bad/energy_report.json"
    path.write_text(as_we_write(value | {"phases": [element]}))
    answer = query("select distinct path from phases", tmp_path)
    assert answer.rows == [(str(tmp_path / "good/energy_report.json"),)]
    assert [(one.path, one.why) for one in answer.skipped] == [(str(path), "partly read")]


def as_we_write(value) -> str:
    """Returns JSON with each top-level field on one line."""
    return "{\n" + ",\n".join(f'"{k}": {json.dumps(v)}' for k, v in value.items()) + "\n}\n"


@pytest.mark.parametrize("indent", [None, 0, 2])
def test_a_report_that_was_written_by_another_tool_is_read(tmp_path, indent):
    """Reports that tools such as ``jq`` reformatted give the same values."""
    report = saved(tmp_path)
    path = tmp_path / "energy_report.json"
    path.write_text(json.dumps(json.loads(path.read_text()), indent=indent))
    row = one("select total_wh from reports", tmp_path)
    assert row["total_wh"] == pytest.approx(report.energy.total.energy_j / 3600)
    assert one("select count(*) as n from phases", tmp_path)["n"] == len(report.phases)
    assert one("select last from metrics", tmp_path)["last"] == 1.0


def test_a_long_head_is_read_whole(tmp_path):
    """Tags of 20 kB move the figures beyond the part that is read first."""
    saved(tmp_path, tags={"note": "x" * 20_000})
    assert one("select len(tags->>'note') as n from reports", tmp_path)["n"] == 20_000


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("report_*.json")), ids=lambda path: path.stem)
def test_reports_of_every_version_are_read(path):
    """Fields that old reports lack are null."""
    row = one("select * from reports", path)
    assert row["total_wh"] == pytest.approx(load(path).energy.total.energy_j / 3600)
    assert row["job_id"] is None


def test_many_workers_lose_nothing(runs, monkeypatch):
    """With chunks of one report, every report is read once."""
    monkeypatch.setattr(tables, "_HEADS", 1)
    monkeypatch.setattr(tables, "_WHOLES", 1)
    for i in range(20):
        shutil.copytree(runs / "a", runs / f"copy{i}")
    (runs / "copy7/energy_report.json").write_text("{}")
    answer = query("select count(distinct path), count(*) from reports", runs)
    assert answer.rows == [(22, 22)]
    assert [one.path for one in answer.skipped] == [str(runs / "copy7/energy_report.json")]
    assert query("select count(distinct path) from phases", runs).rows == [(22,)]


def test_a_slow_disk_is_read_by_many(runs, monkeypatch):
    """Slow locations are read in parallel; rows belong to their paths."""
    monkeypatch.setattr(locations, "_QUICK_S", 0.0)
    monkeypatch.setattr(locations, "_PROBE", 1)
    by_one = query("select path, name from reports order by path", runs).rows
    assert [name for _, name in by_one] == ["a", "b", "c"]
    assert [Path(path).parent.name for path, _ in by_one] == ["a", "b", "c"]


def test_an_address_is_read_through_fsspec(runs):
    """An address of fsspec gives the same rows, and runs without reports are skipped."""
    fsspec = pytest.importorskip("fsspec")
    files = fsspec.filesystem("memory")
    files.store.clear()
    for path in runs.rglob("energy_report.json"):
        files.pipe(f"/bucket/{path.relative_to(runs)}", path.read_bytes())
    files.pipe("/bucket/cut/energy_report.json", b'{"format": "energy')
    files.pipe("/bucket/only/attempts/1/node1-0.jsonl", b"{}")
    answer = query("select name, total_wh from reports order by name", "memory://bucket")
    assert answer.rows == query("select name, total_wh from reports order by name", runs).rows
    assert {(one.why, one.path) for one in answer.skipped} == {
        ("not read", "/bucket/cut/energy_report.json"),
        ("only journals", "/bucket/only"),
    }
    assert query("select count(distinct path) from phases", "memory://bucket").rows == [(3,)]


@pytest.mark.parametrize("part", ["whole", "end"])
def test_a_remote_report_that_cannot_be_read_says_why(runs, monkeypatch, part):
    """The error of the file system is passed on; a report that is complete is not truncated."""
    fsspec = pytest.importorskip("fsspec")
    files = fsspec.filesystem("memory")
    files.store.clear()
    whole = (runs / "a/energy_report.json").read_bytes()
    files.pipe("/bucket/a/energy_report.json", whole)
    read = type(files).cat_file

    def refuse(self, path, start=None, end=None, **more):
        if part == "whole" or start:
            raise PermissionError(13, "Access Denied", path)
        return read(self, path, start, end, **more)

    monkeypatch.setattr(type(files), "cat_file", refuse)
    location = place_of("memory://bucket")
    [head] = location.heads(list(location.find([])))
    assert isinstance(head, PermissionError)
    assert "Access Denied" in str(head)
    if part == "whole":
        [skipped] = query("select * from reports", "memory://bucket").skipped
        assert skipped.why == "not read"
        assert "Access Denied" in skipped.message
    else:  # the head is read again together with the rest
        assert query("select * from reports", "memory://bucket").reports == 1


def test_a_folder_that_cannot_be_listed_is_no_run(runs, monkeypatch):
    """It has a reason of its own, because nobody knows how many runs are in it."""
    (runs / "locked").mkdir()
    scandir = os.scandir

    def refuse(path):
        if str(path).endswith("locked"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    [skipped] = query("select * from reports", runs).skipped
    assert (skipped.why, skipped.path) == ("not listed", str(runs / "locked"))


@pytest.mark.parametrize(
    "sql",
    [
        "select * from read_text('{file}')",
        "select * from '{file}'",
        "select * from read_json('{file}')",
        "select * from glob('{folder}/*')",
        "copy reports to '{folder}/out.csv'",
        "export database '{folder}/out'",
        "attach '{folder}/out.db'",
        "install httpfs",
        "load httpfs",
        "set enable_external_access = true",
        "pragma enable_profiling",
        "create table x as select 1",
        "drop table reports",
        "insert into reports select * from reports",
        "select 1; select 2",
        "",
        "choose name",
        "select nothing from reports",
        "select * from secret",
    ],
)
def test_a_query_reads_reports_and_nothing_else(unchanged, sql):
    """A query cannot read or write files, install extensions, or see variables."""
    secret = {"a": np.array([1])}  # noqa: F841 - DuckDB would find it by its name
    (unchanged / "secret.txt").write_text("secret")
    before = sorted(unchanged.rglob("*"))
    with pytest.raises(QueryError):
        query(sql.format(file=unchanged / "secret.txt", folder=unchanged), unchanged)
    assert sorted(unchanged.rglob("*")) == before


def test_the_lock_itself_holds():
    """The connection has no access to files, whatever the statement."""
    duckdb = pytest.importorskip("duckdb")
    connection = tables.connect()
    for sql in ("COPY reports TO 'x.csv'", "ATTACH 'x.db'", "SET threads = 1"):
        with pytest.raises(duckdb.Error):
            connection.execute(sql).fetchall()


def test_a_report_cannot_speak_sql(tmp_path):
    """Quotes and comments in a name are not interpreted as SQL."""
    name = "'); drop table reports; --"
    saved(tmp_path, run_name=name, tags={"a'b": '"c'})
    row = one("select name, tags from reports", tmp_path)
    assert row["name"] == name
    assert json.loads(row["tags"]) == {"a'b": '"c'}


def test_a_place_without_runs_is_an_error(tmp_path):
    """A folder without runs raises an error."""
    with pytest.raises(JournalError, match=r"no energy_report\.json below"):
        query("select 1", tmp_path)
    with pytest.raises(JournalError, match="does not exist"):
        query("select 1", tmp_path / "none")


def test_every_column_is_in_the_tables():
    """The tables have the columns that ``--columns`` lists."""
    connection = tables.connect()
    for table in TABLES:
        described = connection.execute(f"describe {table.name}").fetchall()
        assert [name for name, *_ in described] == ["path", *(c.name for c in table.columns)]


@pytest.mark.parametrize(
    "sql",
    [
        "select * from reports",
        "from reports",
        "select columns('total_w.') from reports",
        "select reports from reports",
        "select r from reports as r",
        "select unnest(r) from (select reports as r from reports)",
        "select * exclude (path) from reports",
        "summarize reports",
        "unpivot (select * from reports) on total_wh into name n value v",
        "pivot reports on status using sum(total_wh)",
        "explain select total_wh from reports",
        "from reports as r(a, b, c) select c",
        "select count(*) from reports natural join phases",
        "select #3 from reports",
    ],
)
def test_columns_that_are_not_named_are_there_too(sql):
    """Only named columns are parsed, or all of them if the SQL can use unnamed ones."""
    connection = tables.connect()
    assert _asked(connection, sql, REPORTS) == REPORTS
    named = _asked(connection, "select total_wh as t, count(*) from reports group by t", REPORTS)
    assert "total_wh" in named.names
    assert "gpu_wh" not in named.names
    assert {"run_id", "status", "schema_version"} <= set(named.names)


def test_a_question_of_few_columns_finds_what_one_of_all_does(tmp_path):
    """A query of few columns gives the same values and skipped runs as one of all."""
    for i in range(3):
        write(tmp_path / str(i), Attempt(run_id=f"r{i}"))
        save(build(tmp_path / str(i)), tmp_path / str(i), ["json"])
    whole = query("select * from reports order by run_id", tmp_path)
    few = query("select run_id, total_wh from reports order by run_id", tmp_path)
    at = [whole.columns.index(name) for name in few.columns]
    assert few.rows == [tuple(row[i] for i in at) for row in whole.rows]
    assert few.skipped == whole.skipped == ()
