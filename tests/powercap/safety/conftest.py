"""Fixtures: simulated cards, and jobs in processes of their own that change them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.powercap.safety import file_cards

JOB = "tests.powercap.safety.job"
ROOT = Path(__file__).parents[3]
# Time in which the watchdog restores the value found, s, as the issue promises.
RESTORED_S = 2.0


class Job:
    """A running ``job.py``, which has changed the limit of its cards.

    Attributes:
        process: its process.
        watchdog: process id of its watchdog.
    """

    def __init__(self, folder: Path, ending: str, value: float, *uuids: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", JOB, str(folder), ending, str(value), *uuids],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        words = self.process.stdout.readline().split()
        self.has_changed = words[:1] == ["changed"]
        self.watchdog = int(words[1]) if self.has_changed else 0

    def end(self) -> str:
        """Let the job end, and return what it and its watchdog have printed to standard error."""
        return self.process.communicate("\n")[1]

    def kill_watchdog(self) -> None:
        """Kill the watchdog, and wait for its end."""
        os.kill(self.watchdog, signal.SIGKILL)
        until(lambda: Path(f"/proc/{self.watchdog}/stat").read_text().split()[2] == "Z")


def until(is_done: Callable[[], bool], timeout_s: float = 10.0) -> float:
    """Wait until something is the case, and return how long this took, s."""
    start_s = time.monotonic()
    while not is_done():
        assert time.monotonic() - start_s < timeout_s
        time.sleep(0.005)
    return time.monotonic() - start_s


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder for state files; the simulated cards are as new."""
    (tmp_path / "cards").mkdir()
    monkeypatch.setenv(file_cards.VARIABLE, str(tmp_path / "cards"))
    return tmp_path / "state"


@pytest.fixture
def start(folder: Path) -> Iterator[Callable[..., Job]]:
    """Start jobs, which are killed after the test."""
    jobs: list[Job] = []

    def started(ending: str = "exits", value: float = 500.0, *uuids: str) -> Job:
        jobs.append(Job(folder, ending, value, *(uuids or ("GPU-1",))))
        return jobs[-1]

    yield started
    for job in jobs:
        job.process.kill()
        job.process.communicate()
