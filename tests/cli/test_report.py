"""Tests of ``energy-callbacks report`` through its command line."""

import json
from dataclasses import replace

import pytest

from energy_callbacks import __version__
from energy_callbacks.cli import COMMANDS, main
from energy_callbacks.report import save
from energy_callbacks.report.build import build
from energy_callbacks.report.model.schema import from_json
from tests.charts import no_charts  # noqa: F401 - a fixture
from tests.report.journals import Attempt, write


@pytest.fixture
def run_folder(tmp_path):
    """Provide the folder of one finished run."""
    write(tmp_path / "run", Attempt())
    return tmp_path / "run"


def test_a_run_folder_is_rendered_into_itself(run_folder, capsys):
    """Three files are written to the folder; the text and their paths are printed."""
    assert main(["report", str(run_folder)]) == 0
    out = capsys.readouterr().out
    assert "Total energy" in out
    for ending in ("html", "json", "txt"):
        path = run_folder / f"energy_report.{ending}"
        assert path.stat().st_size > 0
        assert str(path) in out.splitlines()


def test_a_run_that_was_killed_has_a_report(tmp_path, capsys):
    """The journal alone gives a report that says that the run was cut off."""
    write(tmp_path, Attempt(cut_off_at_s=50.0, unix_s=1_600_000_000.0))
    assert main(["report", str(tmp_path)]) == 0
    assert "stopped unexpectedly after 50.0 s" in capsys.readouterr().out
    assert from_json((tmp_path / "energy_report.json").read_text()).run.status == "cut off"


@pytest.mark.parametrize("ending", ["html", "json"])
def test_a_saved_report_is_rendered_again_without_its_journals(run_folder, tmp_path, ending):
    """The page or the JSON file alone gives all files again, unchanged."""
    main(["report", str(run_folder)])
    out = tmp_path / "again"
    assert main(["report", str(run_folder / f"energy_report.{ending}"), "--out", str(out)]) == 0
    for path in out.iterdir():
        assert path.read_text() == (run_folder / path.name).read_text()


def test_a_journal_is_rendered_into_its_run_folder(run_folder):
    """The path of the journal of one rank is enough."""
    (journal,) = run_folder.glob("attempts/*/*.jsonl")
    assert main(["report", str(journal), "--format", "txt"]) == 0
    assert (run_folder / "energy_report.txt").exists()
    assert not (run_folder / "energy_report.html").exists()


def test_json_goes_to_the_screen_and_to_no_file(run_folder, capsys):
    """--json prints the report and nothing else."""
    before = sorted(run_folder.rglob("*"))
    assert main(["report", str(run_folder), "--json"]) == 0
    assert from_json(capsys.readouterr().out) == build(run_folder)
    assert sorted(run_folder.rglob("*")) == before


def test_json_with_a_folder_does_both(run_folder, tmp_path, capsys):
    """--json --out writes the files as well, and still prints only JSON."""
    assert main(["report", str(run_folder), "--json", "--out", str(tmp_path / "o")]) == 0
    json.loads(capsys.readouterr().out)
    assert len(list((tmp_path / "o").iterdir())) == 3


@pytest.mark.parametrize("name", ["missing", "empty", "foreign.json", "foreign.html"])
def test_what_is_no_run_is_an_error_on_stderr(tmp_path, capsys, name):
    """Exit code 2, empty standard output, and one line that says what to give."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "foreign.json").write_text('{"a": 1}')
    (tmp_path / "foreign.html").write_text("<html></html>")
    assert main(["report", str(tmp_path / name)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("energy-callbacks report: ")
    assert captured.err.count("\n") == 1
    assert "; give" in captured.err


def test_a_folder_that_cannot_be_made_is_an_error_on_stderr(run_folder, tmp_path, capsys):
    """--out below a file exits with 2 and names the path."""
    (tmp_path / "file").write_text("")
    assert main(["report", str(run_folder), "--out", str(tmp_path / "file" / "x")]) == 2
    assert "file" in capsys.readouterr().err


def test_wrong_arguments_end_with_2(capsys):
    """The parser explains the error and exits with 2."""
    for arguments in ([], ["nonsense"], ["report", "a", "b"], ["report", "x", "--format", "pdf"]):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 2
    assert "usage: energy-callbacks" in capsys.readouterr().err


def test_the_version_is_that_of_the_package(capsys):
    """--version prints the version and exits with 0."""
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"energy-callbacks {__version__}\n"


def test_every_command_has_help(capsys):
    """--help lists every command, and every command has its own help."""
    with pytest.raises(SystemExit):
        main(["--help"])
    listed = capsys.readouterr().out
    for name in COMMANDS:
        assert name in listed
        with pytest.raises(SystemExit) as caught:
            main([name, "--help"])
        assert caught.value.code == 0
        assert f"energy-callbacks {name}" in capsys.readouterr().out


def test_the_newest_run_of_a_folder_is_shown(tmp_path, capsys):
    """A warning says that the folder holds an older run."""
    base = Attempt()
    write(tmp_path, replace(base, run_id="old", run_name="old"))
    write(
        tmp_path,
        replace(base, run_id="new", run_name="new", attempt=2, unix_s=base.unix_s + 1.0),
    )
    main(["report", str(tmp_path), "--format", "txt"])
    out = capsys.readouterr().out
    assert "Energy report: new" in out
    assert "1 older run in the same folder" in out


def test_a_price_has_a_currency(run_folder, capsys):
    """``--currency`` is the currency of ``--price-per-kwh``, or of the run's own price."""
    assert main(["report", str(run_folder), "--price-per-kwh", "0.3", "--currency", "EUR"]) == 0
    assert "at 0.3 EUR per kWh" in capsys.readouterr().out
    for wrong, words in (("EUR", "currency='EUR' needs a price"), ("euro", "three capital")):
        assert main(["report", str(run_folder), "--currency", wrong]) == 2
        assert words in capsys.readouterr().err


@pytest.mark.parametrize("name", ["power.csv", "power.parquet"])
def test_the_time_series_is_written(run_folder, tmp_path, capsys, name):
    """With the contents of ``save``, also if the report is not written."""
    if name.endswith(".parquet"):
        pytest.importorskip("pyarrow")
        pytest.importorskip("pandas")
    file = tmp_path / name
    assert main(["report", str(run_folder), "--country", "FRA", "--time-series", str(file)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(file)
    [saved] = save(build(run_folder), tmp_path / "own", [file.suffix[1:]])
    assert file.read_bytes() == saved.read_bytes()


def test_the_ending_of_a_time_series_is_checked(run_folder, capsys):
    """Before the report is computed."""
    with pytest.raises(SystemExit):
        main(["report", str(run_folder), "--time-series", "power.xlsx"])
    assert "must end with .csv or .parquet, got 'power.xlsx'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "begins"),
    [
        (["--latex"], "% Needs"),
        (["--bibtex"], "@misc{energy_callbacks,"),
        (["--model-card"], "## Environmental impact"),
        (["--annex-xi", "markdown"], "# Computation and energy of the training resnet"),
        (["--annex-xi", "json"], "{"),
    ],
)
def test_documents_are_all_that_is_printed(run_folder, capsys, options, begins):
    """Documents for papers and disclosures go to standard output, and to no file."""
    before = sorted(run_folder.rglob("*"))
    assert main(["report", str(run_folder), *options]) == 0
    assert capsys.readouterr().out.startswith(begins)
    assert sorted(run_folder.rglob("*")) == before


def test_a_document_uses_another_location(run_folder, capsys):
    """--country and --pue change the document, as they change the report."""
    options = ["--latex", "--country", "FRA", "--pue", "1.3"]
    assert main(["report", str(run_folder), *options]) == 0
    out = capsys.readouterr().out
    assert "France" in out
    assert "a PUE of 1.3 times" in out


def test_repeats_are_all_runs_below_the_path(tmp_path, capsys):
    """--repeats prints means of all runs; without --latex or --bibtex it is refused."""
    for i in range(3):
        write(tmp_path / str(i), Attempt(run_id=f"r{i}"))
    assert main(["report", str(tmp_path), "--latex", "--repeats"]) == 0
    assert "Runs (n) & 3 &" in capsys.readouterr().out
    assert main(["report", str(tmp_path), "--repeats"]) == 2
    assert "--repeats needs --latex or --bibtex" in capsys.readouterr().err


@pytest.mark.parametrize(
    "option", ["--out x", "--graphs", "--interactive", "--figures x", "--time-series x.csv"]
)
def test_repeats_have_no_files(run_folder, capsys, option):
    """Options of files are refused, not ignored."""
    words = [str(run_folder), "--repeats", "--latex", *option.split()]
    assert main(["report", *words]) == 2
    assert f"{option.split()[0]}: --repeats writes no files" in capsys.readouterr().err


def test_embodied_emissions_need_a_lifetime(run_folder, capsys):
    """Both options are needed; with both, the document has the share of the run."""
    command = ["report", str(run_folder), "--annex-xi", "json"]
    assert main([*command, "--embodied-kg", "1461"]) == 2
    assert "--lifetime-years is missing" in capsys.readouterr().err
    assert main([*command, "--embodied-kg", "1461", "--lifetime-years", "4"]) == 0
    found = {one["name"]: one for one in json.loads(capsys.readouterr().out)["disclosures"]}
    assert found["embodied_emissions_kg"]["value"] == pytest.approx(80.0 / 86400.0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--model-card", "--embodied-kg", "9", "--lifetime-years", "4"], "--embodied-kg needs"),
        (["--embodied-kg", "9", "--lifetime-years", "4"], "--latex or --bibtex or --annex-xi"),
        (["--latex", "--flops", "1e20"], "--flops needs --annex-xi"),
    ],
)
def test_numbers_that_no_document_contains_are_refused(run_folder, capsys, given, message):
    """A model card would state that embodied emissions are not included."""
    assert main(["report", str(run_folder), *given]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.charts
def test_figures_for_papers(run_folder, tmp_path, capsys):
    """--figures writes a vector graphic per chart and prints the paths."""
    folder = tmp_path / "figures"
    options = ["--figures", str(folder), "--figure-format", "svg", "--format", "txt"]
    assert main(["report", str(run_folder), *options]) == 0
    assert str(folder / "power.svg") in capsys.readouterr().out.splitlines()
    assert (folder / "phases.svg").read_text().startswith("<?xml")
