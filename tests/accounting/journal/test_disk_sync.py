"""Journals reach the disk within ten seconds, and a disk that hangs delays nothing else."""

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.accounting.journal import disk_sync, journal
from energy_callbacks.sensing.clock import SystemClock
from energy_callbacks.testing import FakeClock, ScriptedSource

LIMIT_S = 10


@pytest.fixture
def clock() -> FakeClock:
    """Virtual time."""
    return FakeClock()


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, int]]:
    """The path of each file that was synced, and its size."""
    found: list[tuple[Path, int]] = []

    def fsync(file: int) -> None:
        path = Path(f"/proc/self/fd/{file}").readlink()
        found.append((path, path.stat().st_size if path.is_file() else 0))

    monkeypatch.setattr(os, "fsync", fsync)
    return found


def meter_of(folder: Path, clock: FakeClock | SystemClock, *, raw: bool = False) -> EnergyMeter:
    """A meter of a card."""
    config = EnergyConfig(report_dir=folder, raw_readings=raw)
    virtual = clock if isinstance(clock, FakeClock) else FakeClock()
    source = ScriptedSource(virtual, power_w=lambda _: 100.0)
    return EnergyMeter(config=config, sources=[source], clock=clock)


def test_every_line_is_on_the_disk_after_ten_seconds(
    tmp_path: Path, clock: FakeClock, synced: list[tuple[Path, int]]
) -> None:
    """Journal and raw readings, at any time as they were at most ten seconds before."""
    with meter_of(tmp_path, clock, raw=True):
        [path] = journal.find(tmp_path)
        sizes: dict[Path, list[int]] = {path: [], path.with_suffix(".readings"): []}
        for second in range(40):
            clock.advance(1.0)
            for file, past in sizes.items():
                past.append(file.stat().st_size)
                on_disk = max((size for name, size in synced if name == file), default=0)
                assert second < LIMIT_S or on_disk >= past[second - LIMIT_S]


def test_the_last_line_is_synced(
    tmp_path: Path, clock: FakeClock, synced: list[tuple[Path, int]]
) -> None:
    """The journal is on the disk with its totals when an attempt has ended."""
    with meter_of(tmp_path, clock):
        clock.advance(1.0)
    [path] = journal.find(tmp_path)
    assert journal.has_ended(path)
    assert (path, path.stat().st_size) == synced[-1]


def test_new_folders_are_synced_too(
    tmp_path: Path, clock: FakeClock, synced: list[tuple[Path, int]]
) -> None:
    """A file survives only if its folder and the folders above know it."""
    with meter_of(tmp_path / "run", clock):
        clock.advance(1.0)
    run = tmp_path / "run"
    folders = [name for name, _ in synced if name.is_dir()]
    assert sorted(folders) == sorted([tmp_path, run, run / "attempts", run / "attempts" / "1"])


@pytest.mark.parametrize("code", [errno.EIO, errno.EDQUOT])
def test_a_disk_that_fails_is_one_warning(
    tmp_path: Path,
    clock: FakeClock,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The journal is written as before."""

    def fail(_: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fail)
    with meter_of(tmp_path, clock):
        clock.advance(30.0)
    assert journal.has_ended(journal.find(tmp_path)[0])
    assert caplog.text.count("cannot be synced") == 1


def test_a_deleted_run_is_no_warning(
    tmp_path: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The user may delete a run while it is measured."""
    path = tmp_path / "a.jsonl"
    disk_sync.start(clock, path)
    clock.advance(30.0)
    assert not caplog.records


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A disk that does not answer until the end of the test; set while something waits for it."""
    waiting, release = threading.Event(), threading.Event()

    def fsync(_: int) -> None:
        waiting.set()
        release.wait(60.0)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr("energy_callbacks.accounting.journal_thread._DISK_S", 0.05)
    yield waiting
    release.set()


def test_a_disk_that_hangs_delays_neither_lines_nor_the_end(
    tmp_path: Path, hanging: threading.Event
) -> None:
    """While the sync hangs on its thread, lines are written and the attempt ends."""
    meter = meter_of(tmp_path, SystemClock()).start()
    assert hanging.wait(60.0)
    [path] = journal.find(tmp_path)
    size, pause = path.stat().st_size, threading.Event()
    meter.mark("while the disk hangs")
    end_s = SystemClock().monotonic_s() + 60.0
    while path.stat().st_size == size:
        assert SystemClock().monotonic_s() < end_s
        pause.wait(0.01)
    meter.stop()
    assert journal.has_ended(path)


EXITS = """
import os, sys, threading
os.fsync = lambda _: threading.Event().wait()
from energy_callbacks import EnergyConfig, EnergyMeter
with EnergyMeter(config=EnergyConfig(report_dir=sys.argv[1]), sources=[]):
    pass
"""


def test_a_process_whose_disk_hangs_ends(tmp_path: Path) -> None:
    """The exit of the interpreter does not wait for the disk."""
    subprocess.run([sys.executable, "-c", EXITS, str(tmp_path)], check=True, timeout=60)
    assert journal.has_ended(journal.find(tmp_path)[0])
