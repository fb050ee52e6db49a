"""Saving is atomic, and loading any format returns the same report."""

import os
import stat

import pytest

from energy_callbacks.core.errors import JournalError
from energy_callbacks.report import load, save


def test_a_folder_gets_energy_report_files(report, tmp_path):
    """html, json and txt, in that order, and no draft left behind."""
    (tmp_path / "out").mkdir()
    paths = save(report, tmp_path / "out")
    assert [path.name for path in paths] == [
        "energy_report.html",
        "energy_report.json",
        "energy_report.txt",
    ]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(
        path.name for path in paths
    )


def test_a_stem_names_the_files(report, tmp_path):
    """save(report, "energy") writes energy.html, also with a dot in the name."""
    assert [path.name for path in save(report, str(tmp_path / "energy"))] == [
        "energy.html",
        "energy.json",
        "energy.txt",
    ]
    (path,) = save(report, tmp_path / "new" / "run-1.5", ["json"])
    assert path == tmp_path / "new" / "run-1.5.json"


def test_every_form_loads_as_the_same_report(report, run_folder):
    """JSON, HTML, run folder and journal."""
    html, json, _ = save(report, run_folder)
    (journal,) = run_folder.glob("attempts/*/*.jsonl")
    for path in (html, json, run_folder, journal, str(json)):
        assert load(path) == report


def test_a_file_that_cannot_be_replaced_leaves_no_draft(report, tmp_path):
    """The place of the file is a folder: an OSError, and the folder is as it was."""
    (tmp_path / "energy_report.json").mkdir()
    with pytest.raises(OSError, match=r"energy_report\.json"):
        save(report, tmp_path, ["json"])
    assert [path.name for path in tmp_path.glob(".*")] == []


def test_a_saved_file_is_as_readable_as_any_other(report, tmp_path):
    """The mode is what the user's umask gives, not that of a temporary file."""
    (path,) = save(report, tmp_path, ["txt"])
    mask = os.umask(0o022)
    os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask


@pytest.mark.parametrize("name", ["no.json", "no.html", "no.jsonl", "no"])
def test_a_missing_path_is_named(tmp_path, name):
    """The message says which path, and what to give."""
    with pytest.raises(JournalError, match=rf"{name} does not exist; give a run folder"):
        load(tmp_path / name)


def test_a_foreign_file_is_named(tmp_path):
    """The message of a refused file begins with its path."""
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(JournalError, match=r"x\.json: this is not an energy report"):
        load(tmp_path / "x.json")
