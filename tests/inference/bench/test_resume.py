"""A benchmark that was ended at any moment continues without a lost or doubled row."""

import csv
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from energy_callbacks.cli import main
from energy_callbacks.inference.bench import benchmark
from energy_callbacks.inference.bench.results import Results, Settings
from energy_callbacks.inference.bench.runs import Run, runs
from energy_callbacks.inference.control import controllers
from tests.inference.bench import stand_ins

ROOT = Path(__file__).parents[3]
SETTINGS = Settings(gpu="steady", window_s=1.0, points=4)
COMMAND = (
    *("powercap", "bench", "--gpu", "sim:a100"),
    *("--task-id", "20", "29", "--algorithm", "model", "--iterations", "20"),
    *("--points", "4", "--interleave", "--save-summary", "--resume", "-q"),
)


class Crash(BaseException):
    """The process ends here."""


@pytest.fixture(autouse=True)
def controllers_(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add stand-ins for controllers."""
    every = {**controllers.CONTROLLERS, **stand_ins.CONTROLLERS}
    monkeypatch.setattr(controllers, "CONTROLLERS", every)


def todo() -> list[Run]:
    """Return eight runs of three rows each."""
    tasks = [stand_ins.task(1), stand_ins.task(2)]
    return runs(tasks, ["still", "other"], 2, interleave=True)


def make(folder: Path) -> list[benchmark.Outcome]:
    """Make or continue the benchmark."""
    results = Results(folder)
    every = todo()
    with results.opened(SETTINGS, [one.task for one in every], resume=True):
        device = stand_ins.SteadyDevice()
        outcomes = benchmark.make(
            every, lambda _: device, results, stand_ins.NO_PREDICTORS, window_s=1.0
        )
        return list(outcomes)


def contents(folder: Path) -> dict[str, bytes]:
    """Return all finished files of a results folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.suffix in (".csv", ".json", ".html") and "interrupted" not in path.parts
    }


def crashing(
    monkeypatch: pytest.MonkeyPatch, name: str, at: Iterator[bool], *, is_done: bool
) -> None:
    """Let a function of ``os`` end the process, before or after it has done its work."""
    real: Callable[..., Any] = getattr(os, name)

    def function(*arguments: Any, **options: Any) -> Any:
        is_last = next(at)
        if is_last and not is_done:
            raise Crash
        try:
            return real(*arguments, **options)
        finally:
            if is_last:
                raise Crash

    monkeypatch.setattr(os, name, function)


@pytest.mark.parametrize("is_done", [False, True])
def test_a_crash_at_any_access_to_the_disk(
    is_done: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever access is the last one, the finished files are those without a crash."""
    make(tmp_path / "whole")
    expected = contents(tmp_path / "whole")
    assert len(expected) == 8 + 1
    crashes = 0
    for last in range(1000):
        folder = tmp_path / f"{last}"
        at = (number == last for number in range(10_000))
        with monkeypatch.context() as patched:
            for name in ("fsync", "replace", "open", "mkdir"):
                crashing(patched, name, at, is_done=is_done)
            try:
                make(folder)
                break
            except Crash:
                crashes += 1
        assert len(contents(folder)) <= len(expected)
        outcomes = make(folder)
        assert contents(folder) == expected
        assert not list(folder.rglob("*.part"))
        assert all(not one.error for one in outcomes)
    assert crashes > 8 * 5  # more than once in each run


def test_finished_runs_are_not_made_again(tmp_path: Path) -> None:
    """Only those without a file are."""
    make(tmp_path)
    missing = todo()[3]
    (tmp_path / missing.file("steady")).unlink()
    made = [one.run for one in make(tmp_path) if not one.was_finished]
    assert made == [missing]


def test_rows_of_an_interrupted_run_are_kept_apart(tmp_path: Path) -> None:
    """They are moved to a folder, each time under another name."""
    file = todo()[0].file("steady")
    part = tmp_path / file.with_name(f"{file.name}.part")
    for text in ("first", "second"):
        part.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(text)
        make(tmp_path)
        (tmp_path / file).unlink()
    kept = sorted((tmp_path / "interrupted").iterdir())
    assert [one.read_text() for one in kept] == ["first", "second"]
    assert all(one.name.endswith(f"{file.parent.name}_{file.name}") for one in kept)


def test_two_processes_do_not_share_a_folder(tmp_path: Path) -> None:
    """The second one has an error."""
    with (
        Results(tmp_path).opened(SETTINGS, [], resume=False),
        pytest.raises(BlockingIOError, match="another process writes to"),
    ):
        make(tmp_path)
    make(tmp_path)


def test_results_are_not_mixed_by_accident(tmp_path: Path) -> None:
    """Without --resume, or with other settings or tasks, there is an error."""
    make(tmp_path)
    before = contents(tmp_path)
    results = Results(tmp_path)
    other = Settings(gpu="steady", window_s=2.0, points=4)
    task = stand_ins.task(1, cap_w=90.0)
    for settings, tasks, resume, error, message in (
        (SETTINGS, [], False, FileExistsError, "add --resume to continue it"),
        (other, [], True, ValueError, "has results with window_s 1.0, and this command has 2.0"),
        (SETTINGS, [task], True, ValueError, r"task 1 with schedule \[\[0, 100.0\]\]"),
    ):
        with pytest.raises(error, match=message), results.opened(settings, tasks, resume=resume):
            pass
    assert contents(tmp_path) == before
    with results.opened(SETTINGS, [stand_ins.task(3)], resume=True):
        pass  # another task can be added
    path = tmp_path / "bench.json"
    for damaged in (path.read_text()[:30], "[]", "null"):
        path.write_text(damaged)
        with (
            pytest.raises(ValueError, match=r"bench\.json is damaged"),
            results.opened(SETTINGS, [], resume=True),
        ):
            pass


def rows(folder: Path) -> int:
    """Return the number of lines in all files of rows, also in unfinished ones."""
    count = 0
    for path in folder.rglob("*.csv*"):
        with suppress(FileNotFoundError):  # it gets its name at this moment
            count += path.read_bytes().count(b"\n")
    return count


def killed(folder: Path, count: int) -> bool:
    """Start the command, kill it after some more rows, and return whether it had ended before."""
    command = [sys.executable, "-m", "energy_callbacks", *COMMAND, "--out", str(folder)]
    job = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    goal = rows(folder) + count
    while job.poll() is None and rows(folder) < goal:
        time.sleep(0.001)
    if job.poll() is None:
        os.kill(job.pid, signal.SIGKILL)
    return job.wait() == 0


@pytest.mark.parametrize("times", [2, pytest.param(12, marks=pytest.mark.slow(reason="12 starts"))])
def test_kill_9(times: int, tmp_path: Path) -> None:
    """However often it is killed, all files are byte for byte those of a run without."""
    whole = tmp_path / "whole"
    assert main([*COMMAND, "--out", str(whole)]) == 0
    expected = contents(whole)
    chance = random.Random(times)
    for number in range(10):  # it may end first, if this process has no processor
        broken = tmp_path / f"broken{number}"
        ends = [killed(broken, chance.randint(1, 40 // times)) for _ in range(times)]
        if False in ends:
            break
    assert False in ends  # it was killed at least once
    assert main([*COMMAND, "--out", str(broken)]) == 0
    assert contents(broken) == expected
    runs_ = [name for name in expected if name.startswith("sim-a100_model")]
    assert len(runs_) == 2
    for name in runs_:
        with (broken / name).open(newline="") as file:
            numbers = [int(line["iter"]) for line in csv.DictReader(file)]
        assert numbers == list(range(20))
