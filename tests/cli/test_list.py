"""Tests of ``energy-callbacks list``, and of how commands find the runs below a folder."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from energy_callbacks.cli import main
from energy_callbacks.cli.common import run_folders
from energy_callbacks.report.model.schema import from_json
from tests.charts import no_charts  # noqa: F401 - a fixture
from tests.report.journals import Attempt, write

BASE = Attempt()
KILLED = Path("killed/lightning_logs/version_0/energy")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Enter a folder with three runs, of which ``killed`` is the oldest and ``new`` the newest."""
    monkeypatch.chdir(tmp_path)
    for number, (folder, name, end_s) in enumerate(
        ((KILLED, "first", 50.0), (Path("old"), "second", None), (Path("new"), "third", None))
    ):
        unix_s = BASE.unix_s + 100.0 * number
        one = replace(BASE, run_id=name, run_name=name, unix_s=unix_s, cut_off_at_s=end_s)
        write(tmp_path / folder, one)
    return tmp_path


def listed(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict]:
    """Return the output of ``--json``."""
    assert main(["list", *words, "--json"]) == 0
    found: list[dict] = json.loads(capsys.readouterr().out)
    return found


def test_the_newest_run_is_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    """Every run below the current folder has a line, with its status and energy."""
    assert main(["list"]) == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["started", "status", "time", "energy", "name", "folder"]
    assert [row.split()[-1] for row in rows] == ["new", "old", str(KILLED)]
    assert "cut off" in rows[2]
    assert "10.7 Wh" in rows[0]


def test_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Columns are neither left out nor cut off: the terminal wraps the lines."""
    for name, value in (("FORCE_COLOR", "1"), ("TERM", "xterm"), ("COLUMNS", "40")):
        monkeypatch.setenv(name, value)
    assert main(["list"]) == 0
    row = capsys.readouterr().out.splitlines()[1]
    assert all(cell in row for cell in ("finished", "1 min 20 s", "10.7 Wh", "third", "new"))


def test_json_has_the_names_of_query(capsys: pytest.CaptureFixture[str]) -> None:
    """Energies are in Wh."""
    newest, *_, oldest = listed(capsys)
    assert (newest["name"], newest["status"], newest["problem"]) == ("third", "finished", None)
    assert newest["total_wh"] == pytest.approx(newest["gpu_wh"] + newest["host_wh"])
    assert oldest["status"] == "cut off"
    assert set(newest) == set(oldest)


def test_a_limit(capsys: pytest.CaptureFixture[str]) -> None:
    """Older runs are left out, with a note."""
    assert main(["list", "--limit", "1"]) == 0
    told = capsys.readouterr()
    assert len(told.out.splitlines()) == 2
    assert told.err == "2 older runs are not listed; --limit 3 lists all\n"


def test_a_saved_report_is_used_until_a_journal_is_newer(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A resumed run is read from its journals, although an older report is there."""
    assert main(["report", "new", "--format", "json", "-q"]) == 0
    report = place / "new/energy_report.json"
    report.write_text(report.read_text().replace('"third"', '"from the report"'))
    capsys.readouterr()
    assert listed(capsys)[0]["name"] == "from the report"
    [journal] = place.glob("new/attempts/1/*.jsonl")
    later_s = report.stat().st_mtime + 10.0
    os.utime(journal, (later_s, later_s))
    assert listed(capsys)[0]["name"] == "third"


def test_a_report_without_journals_is_a_run(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A copy of the report is listed, and shown without a path if it is the newest."""
    assert main(["report", "old", "--format", "html", "-q"]) == 0
    (place / "copy").mkdir()
    (place / "old/energy_report.html").rename(place / "copy/energy_report.html")
    capsys.readouterr()
    assert listed(capsys)[0]["folder"] == "copy"
    assert main(["report", "--json"]) == 0
    assert from_json(capsys.readouterr().out).run.name == "second"


def test_damaged_runs_come_last(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run that cannot be read has a line and the reason; it is never the newest."""
    (place / "bad/attempts/1").mkdir(parents=True)
    (place / "bad/attempts/1/host-0.jsonl").write_text("no journal")
    assert main(["list"]) == 0
    told = capsys.readouterr()
    assert told.out.splitlines()[-1].split()[1] == "unreadable"
    assert "first line is not a header" in told.err
    last = listed(capsys)[-1]
    assert (last["status"], last["total_wh"]) == ("unreadable", None)
    assert "not a header" in last["problem"]
    assert main(["report", "--format", "txt"]) == 0


def test_hidden_folders_are_not_searched(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing below .venv is listed; a folder without runs has a note."""
    write(place / ".venv/run", BASE)
    assert [one["folder"] for one in listed(capsys)] == ["new", "old", str(KILLED)]
    (place / "empty").mkdir()
    assert main(["list", "empty"]) == 0
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", "no runs below empty\n")


def test_report_without_a_path_shows_the_newest_run(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its files are written, and a note names the other runs' command."""
    assert main(["report", "--format", "txt"]) == 0
    told = capsys.readouterr()
    assert "Energy report: third" in told.out
    assert (place / "new/energy_report.txt").exists()
    assert (
        "3 runs below .; the newest, new, is shown. energy-callbacks list . lists all" in told.err
    )


def test_report_finds_the_run_below_a_folder(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One run is found at any depth, without a note; files go to the run folder."""
    assert main(["report", "killed", "--format", "txt"]) == 0
    told = capsys.readouterr()
    assert "cut off · 50.0 s" in told.out
    assert told.err == ""
    assert (place / KILLED / "energy_report.txt").exists()
    assert main(["report", str(KILLED.parent), "--format", "json"]) == 0
    assert (place / KILLED / "energy_report.json").exists()
    assert not (place / KILLED.parent / "energy_report.json").exists()


def test_run_folders_stay_in_the_order_of_their_attempts(place: Path) -> None:
    """A run that was resumed last is the newest."""
    again = replace(BASE, run_id="second", attempt=2, unix_s=BASE.unix_s + 1000.0)
    write(place / "old", again)
    assert run_folders.below(Path())[0] == Path("old")


def test_a_report_that_is_a_broken_link_comes_last(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in a data set whose files were not fetched: the other runs are listed."""
    (place / "link").mkdir()
    (place / "link/energy_report.json").symlink_to("not-fetched")
    assert [one["folder"] for one in listed(capsys)] == ["new", "old", str(KILLED), "link"]


def test_a_journal_without_a_time_comes_last(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its header has ``null`` instead of the time of the start."""
    [path] = place.glob("new/attempts/1/*.jsonl")
    path.write_text(path.read_text().replace(f'"unix_s":{BASE.unix_s + 200.0}', '"unix_s":null'))
    last = listed(capsys)[-1]
    assert (last["folder"], last["status"]) == ("new", "unreadable")
    assert "unix_s" in last["problem"]


def test_a_report_of_a_running_training_is_not_the_last_word(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was saved shortly after the process was killed, and no journal is newer."""
    assert main(["report", str(KILLED), "--format", "json", "-q"]) == 0
    report = place / KILLED / "energy_report.json"
    report.write_text(report.read_text().replace('"cut off"', '"running"'))
    capsys.readouterr()
    assert listed(capsys)[-1]["status"] == "cut off"
