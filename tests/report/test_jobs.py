"""The batch-system job in a report: of the run, and of attempts if they differ."""

import io
from dataclasses import asdict

import pytest
from rich.console import Console

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.accounting.journal.batch_job import Job
from energy_callbacks.report import build, load, save
from energy_callbacks.report.render import html, terminal, text
from energy_callbacks.testing import FakeClock
from tests.report.journals import Attempt, write

FIRST = Job(system="slurm", id="77", name="train", queue="gpu")
SECOND = Job(system="slurm", id="78", name="train", queue="gpu")


def printed(report) -> str:
    """As a terminal shows it."""
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    terminal.print_rich(report, console)
    return console.file.getvalue()


def test_a_training_in_a_job_says_which(tmp_path, monkeypatch):
    """From the environment through the journal into the report."""
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    monkeypatch.setenv("SLURM_JOB_PARTITION", "gpu")
    clock = FakeClock()
    with EnergyMeter(config=EnergyConfig(report_dir=tmp_path), sources=[], clock=clock):
        clock.advance(1.0)
    found = build(tmp_path).run.job
    assert found is not None
    assert (found.system, found.id, found.queue) == ("slurm", "77", "gpu")


def test_it_is_shown_everywhere_and_read_again(tmp_path):
    """Text, page and terminal have it; JSON and page give it back."""
    write(tmp_path, Attempt(job=asdict(FIRST)))
    report = build(tmp_path)
    assert report.run.job == FIRST
    assert [one.job for one in report.attempts] == [FIRST]
    for shown in (text.render(report), html.render(report), printed(report)):
        assert "Slurm job 77, train, in gpu" in shown
    for path in save(report, tmp_path, ["json", "html"]):
        assert load(path) == report


def test_each_attempt_has_its_own(tmp_path):
    """A requeued training: the run has the newest, the list of attempts both."""
    write(tmp_path, Attempt(job=asdict(FIRST)))
    write(tmp_path, Attempt(job=asdict(SECOND), attempt=2, unix_s=1_790_000_500.0))
    report = build(tmp_path)
    assert report.run.job == SECOND
    assert [one.job for one in report.attempts] == [FIRST, SECOND]
    for shown in (text.render(report), printed(report)):
        assert "attempt 1: Slurm job 77, train, in gpu" in shown
        assert "attempt 2: Slurm job 78, train, in gpu" in shown
    assert "<small><bdi>Slurm job 77, train, in gpu</bdi></small>" in html.render(report)


def test_ranks_in_one_job_name_it_once(tmp_path):
    """All ranks of a launch are in the job of the run: no list of attempts' jobs."""
    for rank in range(2):
        write(tmp_path, Attempt(job=asdict(FIRST), rank=rank, world_size=2, launch="a"))
    report = build(tmp_path)
    assert [one.job for one in report.attempts] == [FIRST, FIRST]
    assert text.render(report).count("Slurm job 77") == 1


def test_a_job_cannot_speak_to_the_terminal(tmp_path):
    """Its name is the user's: escape sequences and markup are shown, not obeyed."""
    evil = asdict(FIRST) | {"name": "a\x1b[2Jb<script>"}
    write(tmp_path, Attempt(job=evil))
    report = build(tmp_path)
    assert "\x1b[2J" not in text.render(report)
    assert "\x1b[2J" not in printed(report)
    assert "<script>" not in html.render(report).partition("<body>")[2].replace(
        '<script type="application/json"', ""
    )


@pytest.mark.parametrize("job", [None, "77", {}])
def test_a_run_without_a_job_shows_none(tmp_path, job):
    """Nor one whose header holds something else."""
    write(tmp_path, Attempt(job=job))
    report = build(tmp_path)
    assert report.run.job is None
    assert "job" not in text.render(report).splitlines()[2]
