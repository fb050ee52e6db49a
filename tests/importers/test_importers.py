"""Tests of all formats: recognition, limits, and run folders made of logs."""

import pytest

from energy_callbacks import importers
from energy_callbacks.accounting.journal import journal
from energy_callbacks.cli import main
from energy_callbacks.core.errors import JournalError
from energy_callbacks.importers import IMPORTERS, samples
from energy_callbacks.report import build, load
from energy_callbacks.report.build import gather
from energy_callbacks.report.charts import catalogue
from energy_callbacks.report.collect import gpu_stats
from energy_callbacks.report.render import html
from tests.importers.logs import MIB, as_json, native, simple, smi, smi_time, times
from tests.report.journals import Attempt, write


@pytest.fixture
def log(tmp_path):
    """Returns a log of 20 s at 250 W."""
    return as_json(tmp_path / "stats.json", [native(at) for at in times(21, 1.0)])


def test_a_format_is_told_by_what_stands_in_the_file(log, tmp_path):
    """A format is recognised by content, not by the name of the file."""
    for name in ("stats.txt", "stats", "stats.csv", "stats.jsonl"):
        other = tmp_path / name
        other.write_bytes(log.read_bytes())
        assert load(other).energy.gpu.energy_j == pytest.approx(5000.0)


def test_our_own_files_are_no_logs(tmp_path):
    """Journals and reports of this package are no logs, whatever their tags are."""
    path = write(tmp_path / "run", Attempt(tags={"all_smi_version": "1", "schema": "x"}))
    main(["report", str(tmp_path / "run"), "--format", "json"])
    for ours in (path, tmp_path / "run" / "energy_report.json"):
        assert not importers.is_log(ours)
        assert load(ours).run.framework == "lightning"


def test_files_that_nobody_knows_are_refused(tmp_path):
    """Unknown files are refused, including 1 GB of zeros."""
    for content in (
        b"",
        b"a,b\n1,2\n",
        b"[]",
        b"{}",
        b'{"a": ',
        b"\xff\xfe\x00",
        b"\x28\xb5\x2f\xfd",
    ):
        for name in ("x.csv", "x.json", "x"):
            path = tmp_path / name
            path.write_bytes(content)
            with pytest.raises(JournalError):
                load(path)
    with (tmp_path / "huge.json").open("wb") as file:
        file.truncate(2**30)
    with pytest.raises(JournalError, match=r"larger than 256 MiB"):
        load(tmp_path / "huge.json")


def test_a_log_of_too_many_samples_is_refused(log, monkeypatch):
    """A log with more than the maximum of samples is refused."""
    monkeypatch.setattr(samples, "MOST_SAMPLES", 20)
    with pytest.raises(JournalError, match=r"stats\.json contains more than 20 samples; split it"):
        load(log)


def test_a_log_of_one_run_has_no_other(log, tmp_path):
    """A name after ``#`` is an error, except ``last``."""
    windows = tmp_path / "windows.csv"
    names = "start_time,window_name,elapsed_time,gpu0_energy"
    windows.write_text(f"{names}\n1795000000.0,train,10.0,1000.0\n")
    for path in (log, windows):
        with pytest.raises(JournalError, match="contains one run, got '3' after #; leave it out"):
            load(f"{path}#3")
        assert load(f"{path}#last").energy == load(path).energy


def test_a_kept_log_is_a_run_folder(log, tmp_path):
    """The journal in the folder gives the report of the log; keeping it twice changes nothing."""
    folder = tmp_path / "kept"
    for _ in range(2):
        path = importers.keep(log, folder)
        assert path == folder / "attempts" / "1" / "unknown-0.jsonl"
        path.with_suffix(".draft").write_text("what a killed one had written\n")
    importers.keep(log, folder)
    assert next(journal.read(path))["type"] == "header"
    assert [one.name for one in path.parent.iterdir()] == [path.name]
    first, again = load(log), load(folder)
    assert again.energy == first.energy
    assert (again.run, again.devices, again.series) == (first.run, first.devices, first.series)
    assert again.warnings == first.warnings


def test_a_kept_log_has_no_secrets(tmp_path):
    """Neither in the command, nor in the settings of the training."""
    told = {"training_command": "train --token X1zvQ", "hf_token": "X1zvQ", "optimizer": "adam"}
    records = [simple(at, training_metadata=told) for at in times(11, 1.0)]
    kept = importers.keep(as_json(tmp_path / "log.json", records), tmp_path / "run").read_text()
    assert "X1zvQ" not in kept
    assert '"hf_token":"REDACTED","optimizer":"adam"' in kept


def test_a_log_never_takes_the_place_of_a_run(log, tmp_path):
    """A log is not kept in a folder that has the journals of a training or another log."""
    write(tmp_path / "run", Attempt())
    before = build(tmp_path / "run")
    with pytest.raises(ValueError, match="already contains another run"):
        importers.keep(log, tmp_path / "run")
    assert build(tmp_path / "run").energy == before.energy
    other = as_json(tmp_path / "other.json", [native(at) for at in times(31, 1.0)])
    importers.keep(log, tmp_path / "kept")
    with pytest.raises(ValueError, match="already contains another run"):
        importers.keep(other, tmp_path / "kept")
    with pytest.raises(ValueError, match="not a log in a known format"):
        importers.keep(tmp_path / "run" / "nothing", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_report_shows_a_log_and_writes_nothing_beside_it(log, tmp_path, capsys):
    """The report of a log is printed only, because its folder may have the report of a run."""
    before = set(tmp_path.iterdir())
    assert main(["report", str(log)]) == 0
    assert "log of gputop" in capsys.readouterr().out
    assert main(["report", str(log), "--graphs"]) == 2
    assert set(tmp_path.iterdir()) == before


@pytest.mark.charts
def test_report_makes_a_run_folder_of_a_log(log, tmp_path, monkeypatch):
    """``--out`` gets journal, page and pictures; a location can be given, and reported again."""
    monkeypatch.setattr(catalogue, "CHARTS", catalogue.CHARTS[:1])
    monkeypatch.setattr(html, "CHARTS", ())
    out = tmp_path / "kept"
    assert main(["report", str(log), "--out", str(out), "--graphs", "--country", "DEU"]) == 0
    names = {path.name for path in out.iterdir()}
    assert {"attempts", "energy_report.html", "energy_report_power.png"} <= names
    assert load(out / "energy_report.json").emissions.place == "Germany"
    assert main(["report", str(out)]) == 0


def test_report_names_the_runs_of_a_file_with_several(tmp_path, capsys):
    """The runs of a file with several are listed on stderr, with exit code 2."""
    path = tmp_path / "emissions.csv"
    path.write_text("run_id,duration,emissions,energy_consumed,gpu_energy,gpu_model\n"
                    "a,10,1,1,1,H100\nb,20,1,1,1,H100\n")  # fmt: skip
    assert main(["report", str(path)]) == 2
    assert "they are a (10 s), b (20 s)" in capsys.readouterr().err
    assert main(["report", f"{path}#b"]) == 0


def test_our_gpu_stats_give_the_joules_of_the_run(tmp_path):
    """Files that ``energy-callbacks run`` writes for other programs give the energy of the run."""
    write(tmp_path / "run", Attempt())
    attempts = gather(tmp_path / "run")
    path = tmp_path / "gpu_stats_train_20261121_001739.json"
    gpu_stats.write(gpu_stats.samples(attempts), path)
    report, run = load(path), build(tmp_path / "run")
    assert report.energy.gpu.energy_j == pytest.approx(run.energy.gpu.energy_j, rel=0.01)
    assert (report.run.name, report.run.tags) == ("train", {"model": "resnet"})
    assert not any("no zone" in note for note in report.method_notes)


def test_a_log_is_read_in_parts(tmp_path):
    """40,000 lines, more than one read operation returns, give the energy of all samples."""
    path = smi(tmp_path / "hour.csv", (f"{smi_time(at)}, 250.00 W" for at in times(40_001, 0.1)))
    report = load(path)
    assert report.energy.gpu.energy_j == pytest.approx(250.0 * 4_000.0)
    assert path.stat().st_size > MIB


@pytest.mark.slow(reason="200,000 lines, which take seconds to write and to read")
def test_days_of_samples_are_read_in_seconds_and_in_bounded_memory(tmp_path):
    """200,000 lines give the energy of all samples."""
    path = smi(tmp_path / "day.csv", (f"{smi_time(at)}, 250.00 W" for at in times(200_001, 0.1)))
    report = load(path)
    assert report.energy.gpu.energy_j == pytest.approx(250.0 * 20_000.0)
    assert path.stat().st_size > 6 * MIB


def test_every_format_has_its_name() -> None:
    """Every format has a name for users."""
    assert all(one.NAME and callable(one.records) for one in IMPORTERS)
