"""Report processes: one at a time, only the newest of several, and what happens without them."""

import io
import logging
import os
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from energy_callbacks.report import load
from energy_callbacks.report_process import queue
from energy_callbacks.report_process.job import ReportJob
from energy_callbacks.report_process.queue import ReportQueue


class FakeProcess:
    """A report process that calls a function while it runs."""

    def __init__(self, while_running: Callable[[str], object], status: int = 0) -> None:
        self._while_running = while_running
        self.returncode = status

    def communicate(self, text: str, timeout: float) -> tuple[str, str]:
        self._while_running(text)
        return "\n{}\n", "boom" if self.returncode else ""

    def wait(self) -> int:
        return self.returncode

    def kill(self) -> None: ...


def folders(jobs: list[ReportJob]) -> list[str]:
    """The names of the run folders of jobs."""
    return [job.run_folder.name for job in jobs]


def test_one_report_at_a_time_and_only_the_newest(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Of three trainings that end while a report is made, the last gets its report."""
    reports, made, running = ReportQueue(), [], []
    jobs = [ReportJob(Path(name)) for name in "abcd"]

    def while_running(text: str) -> None:
        made.append(ReportJob.from_json(text))
        running.append(len(running))
        assert len(running) == 1, "there are two at once"
        for job in jobs[1:] if len(made) == 1 else ():
            reports.make(job)  # as another journal's thread does
        running.clear()

    monkeypatch.setattr(queue, "_started", lambda: FakeProcess(while_running))
    with caplog.at_level(logging.WARNING):
        reports.make(jobs[0])
    assert folders(made) == ["a", "d"]
    assert all(job.done.is_set for job in jobs)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert all(
        f"energy-callbacks report {name}" in text for name, text in zip("bc", said, strict=True)
    )
    reports.make(ReportJob(Path("e")))
    assert folders(made) == ["a", "d", "e"], "it starts again"


def test_text_after_the_figures_does_not_stop_later_reports(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The figures are found, or the report is published without them, and the next is made."""
    reports, published = ReportQueue(), []
    process = FakeProcess(lambda _: None)
    outputs = iter(['\n{"final/total_wh": 1.0}\n0\ngoodbye\n', "goodbye\n"])
    monkeypatch.setattr(process, "communicate", lambda *_, **__: (next(outputs), ""))
    monkeypatch.setattr(queue, "_started", lambda: process)
    for name in "ab":
        reports.make(ReportJob(Path(name), on_report=[lambda *values: published.append(values)]))
    assert published == [({"final/total_wh": 1.0}, Path("a")), ({}, Path("b"))]
    assert "the figures of a report cannot be read" in caplog.text


def test_a_second_training_in_the_same_folder_is_no_skipped_report(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The report of a run folder has all its attempts."""
    reports, made = ReportQueue(), []

    def while_running(text: str) -> None:
        made.append(text)
        for _ in range(2 if len(made) == 1 else 0):
            reports.make(ReportJob(Path("same")))

    monkeypatch.setattr(queue, "_started", lambda: FakeProcess(while_running))
    reports.make(ReportJob(Path("same")))
    assert len(made) == 2
    assert not caplog.records


def test_a_report_process_that_fails_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The warning has the end of its message, and what to do."""
    monkeypatch.setattr(queue, "_started", lambda: FakeProcess(lambda text: None, status=1))
    ReportQueue().make(ReportJob(Path("a")))
    [record] = caplog.records
    assert "no energy report in a: boom" in record.getMessage()
    assert "energy-callbacks report a" in record.getMessage()


def refuse() -> None:
    """No process can be started."""
    raise OSError("no memory")


def test_without_a_process_the_newest_report_is_made_at_exit(
    monkeypatch: pytest.MonkeyPatch,
    trained: Callable[..., Path],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The older one is skipped with a warning; the interpreter's exit calls ``make_kept``."""
    monkeypatch.setattr(queue, "_started", refuse)
    reports, first, second = ReportQueue(), trained("first"), trained("second")
    for folder in (first, second):
        reports.make(ReportJob(folder))
    assert not (second / "energy_report.html").exists()
    reports.make_kept()
    reports.make_kept()
    assert (second / "energy_report.html").exists()
    assert not (first / "energy_report.html").exists()
    assert f"the report of {first} was skipped" in caplog.text


def test_whoever_waits_for_a_kept_report_makes_it(
    monkeypatch: pytest.MonkeyPatch, trained: Callable[..., Path]
) -> None:
    """Otherwise it would wait until the exit."""
    monkeypatch.setattr(queue, "_started", refuse)
    reports, job = ReportQueue(), ReportJob(trained())
    reports.make(job)
    reports.wait(job, 60.0)
    assert job.done.is_set
    assert (job.run_folder / "energy_report.html").exists()


def test_a_report_that_cannot_be_made_here_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is raised."""
    queue.make_here(ReportJob(tmp_path / "nothing"))
    assert "no energy report" in caplog.text


@pytest.mark.parametrize("executable", ["", "/usr/bin/blender"])
def test_only_python_is_started(monkeypatch: pytest.MonkeyPatch, executable: str) -> None:
    """The program of an embedded interpreter would run again."""
    monkeypatch.setattr(sys, "executable", executable)
    with pytest.raises(RuntimeError, match="cannot start Python"):
        queue._started()


@pytest.mark.parametrize("cause", ["frozen", "variable"])
def test_no_process_is_started(monkeypatch: pytest.MonkeyPatch, cause: str) -> None:
    """Not from a frozen program, and not if the user forbids it."""
    if cause == "frozen":
        monkeypatch.setattr(sys, "frozen", True, raising=False)
    else:
        monkeypatch.setenv(queue.PROCESS_VARIABLE, "0")
    with pytest.raises(RuntimeError, match="cannot start Python"):
        queue._started()


def test_the_process_sees_no_gpu_and_gets_no_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a new interpreter in a session of its own, with the modules of this process."""
    found: dict[str, Any] = {}
    monkeypatch.setattr(sys, "path", ["", "/somewhere"])
    monkeypatch.setattr(
        subprocess, "Popen", lambda command, **options: found.update(options, command=command)
    )
    queue._started()
    assert found["command"][:2] == [sys.executable, "-P"]
    assert found["env"]["CUDA_VISIBLE_DEVICES"] == ""
    assert found["env"]["PYTHONPATH"] == os.pathsep.join((str(Path.cwd()), "/somewhere"))
    assert found["start_new_session"]


def test_the_process_lowers_its_priority_and_makes_the_report(
    monkeypatch: pytest.MonkeyPatch, trained: Callable[..., Path]
) -> None:
    """The module reads the job from the standard input."""
    niceness: list[int] = []
    folder = trained()
    monkeypatch.setattr(os, "nice", niceness.append)
    monkeypatch.setattr(sys, "stdin", io.StringIO(ReportJob(folder).as_json()))
    runpy.run_module("energy_callbacks.report_process", run_name="__main__")
    assert niceness == [19]
    assert load(folder / "energy_report.json").throughput.samples == 20


@pytest.mark.parametrize(
    ("run_ids", "expected"),
    [("111", ["a", "b", "c"]), ("122", ["a", "b", "c"]), ("123", ["a", "c"])],
)
def test_a_skipped_report_of_the_same_run_is_published_with_the_newer_one(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    run_ids: str,
    expected: list[str],
) -> None:
    """The figures of another run in the same folder are not; a warning says so."""
    reports, published, made = ReportQueue(), [], []
    jobs = [
        ReportJob(Path("same"), (), [lambda *_, name=name: published.append(name)], run_id)
        for name, run_id in zip("abc", run_ids, strict=True)
    ]

    def while_running(text: str) -> None:
        made.append(text)
        for job in jobs[1:] if len(made) == 1 else ():
            reports.make(job)

    monkeypatch.setattr(queue, "_started", lambda: FakeProcess(while_running))
    reports.make(jobs[0])
    assert len(made) == 2
    assert published == expected
    assert ("was skipped" in caplog.text) == ("b" not in expected)


def test_a_report_that_was_not_made_is_not_published(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits for it does not wait longer."""
    published: list[Any] = []
    monkeypatch.setattr(queue, "_started", lambda: FakeProcess(lambda text: None, status=1))
    job = ReportJob(Path("a"), (), [lambda *found: published.append(found)])
    ReportQueue().make(job)
    assert published == []
    assert job.done.is_set


def test_a_real_process_makes_the_report(trained: Callable[..., Path]) -> None:
    """It imports this package as this process does, and returns the last figures."""
    published: list[Any] = []
    job = ReportJob(trained(), (), [lambda *found: published.append(found)])
    ReportQueue().make(job)
    [(figures, folder)] = published
    assert folder == job.run_folder
    assert figures["final/total_wh"] == pytest.approx(100.0 * 10.0 / 3600)
    assert {path.suffix for path in job.run_folder.glob("energy_report.*")} == {
        ".html",
        ".json",
        ".txt",
    }
