"""Fixtures: a machine with a simulated GPU and a stand-in for MPS's daemon."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from energy_callbacks.inference.profile import cleaner
from tests.core.waiting import until
from tests.fake_nvml import Constant, FakeNvml, Scenario, fixtures, h200
from tests.fake_nvml.build import build

fake_nvml = fixtures.fake_nvml
ROOT = Path(__file__).parents[3]
FAKE_MPS = Path(__file__).with_name("fake_mps.py")
STEADY = "tests.inference.profile.models:steady"
# In the note of a row, if its tenant had no processor for the whole window.
NO_BATCH = "has ended no batch in the window"
SHORT = (
    *("--model", STEADY, "--share", "50", "--batch", "1"),
    *("--window", "0.1", "--warmup", "0.01"),
)


class Machine:
    """A machine with one GPU, in a temporary folder.

    Attributes:
        folder: the folder.
        nvml: its simulated NVML.
    """

    def __init__(self, folder: Path, nvml: FakeNvml) -> None:
        self.folder, self.nvml = folder, nvml
        self.jobs: list[subprocess.Popen[str]] = []

    @property
    def out(self) -> Path:
        """The file of the rows."""
        return self.folder / "rows.csv"

    def start(self, *words: str) -> "subprocess.Popen[str]":
        """Start a profile in a process and a process group of its own."""
        job = subprocess.Popen(
            [
                *(sys.executable, "-m", "energy_callbacks", "powercap", "profile", "--gpu", "0"),
                *("--out", str(self.out), *words),
            ],
            env=os.environ | self.nvml.env(),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.jobs.append(job)
        return job

    def left(self) -> list[str]:
        """Return the command lines of all processes of profiles in the folder."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get(cleaner.MARK, "").startswith(str(self.folder)):
                    found.append(" ".join(process.cmdline()))
        return found


@pytest.fixture
def machine(
    fake_nvml: Callable[..., FakeNvml], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Machine]:
    """Provide a machine; nothing of its profiles is left after the test."""
    # Its path leaves space for MPS's sockets; that of tmp_path may not, and is then not used.
    with tempfile.TemporaryDirectory(prefix="ec-test-", dir="/tmp") as folder:
        yield from _machine(Path(folder), fake_nvml, monkeypatch)


def _machine(
    folder: Path, fake_nvml: Callable[..., FakeNvml], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Machine]:
    program = folder / "bin" / cleaner.CONTROL
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable} -SE\n{FAKE_MPS.read_text()}")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_NVML_CACHE", str(build().parents[1]))  # not compiled for each test
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)  # it is read again
    scenario = Scenario(cards=(h200(Constant(300.0)),), epoch_unix_s=time.time() - 60.0)
    one = Machine(folder, fake_nvml(scenario, virtual=False))
    yield one
    for job in one.jobs:
        job.kill()
        job.communicate()
    until(lambda: not one.left())
    until(lambda: not list(folder.glob("ec-*")))
