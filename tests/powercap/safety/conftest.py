"""Fixtures: simulated cards, and jobs in processes of their own that change them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from energy_callbacks.core.errors import ActuatorError
from energy_callbacks.powercap.safety import gpu_lock
from energy_callbacks.powercap.safety.changed_cards import ChangedCards
from energy_callbacks.powercap.settings import Setting
from energy_callbacks.sensing.sources.sysfs.family import SYSFS_VARIABLE
from tests.fake_nvml import Constant, FakeNvml, Scenario, card_uuid, fixtures, h200
from tests.powercap.actuators.hwmon_cards import ADDRESSES, amd_card
from tests.powercap.safety import file_cards
from tests.powercap.safety.file_cards import ACTUATORS

fake_nvml = fixtures.fake_nvml
ROOT = Path(__file__).parents[3]
# Time in which the watchdog restores the value found, s, as the issue promises.
RESTORED_S = 2.0
# What takes longer does not happen, also on a busy machine, s.
LONGEST_S = 60.0
# For tests of what the actuator does. Locks, processes and sessions do not depend on it.
EVERY_KIND = pytest.mark.parametrize("machine", ["files", "nvml", "hwmon"], indirect=True)


@dataclass(frozen=True)
class Machine:
    """Two simulated cards with a limit of 700 W.

    Attributes:
        kind: ``files``, ``nvml`` or ``hwmon``, see ``ACTUATORS``.
        folder: folder of the state files.
        uuids: UUIDs of the cards.
    """

    kind: str
    folder: Path
    uuids: tuple[str, str]

    @property
    def limits(self) -> tuple[float | None, ...]:
        """The present limits of the cards, W; empty while another process writes a file.

        Unlike a file in ``/sys``, a plain file is empty for a moment then.
        """
        actuator = ACTUATORS[self.kind]()
        try:
            return tuple(actuator.read(uuid, "limit") for uuid in self.uuids)
        except ActuatorError:
            return ()

    def write(self, place: int, value: float) -> None:
        """Change the limit of a card, as another program would."""
        ACTUATORS[self.kind]().write(self.uuids[place], Setting(knob="limit", value=value))

    def cards(self) -> ChangedCards:
        """Return both cards, for changes by this process."""
        actuator = ACTUATORS[self.kind]()
        return ChangedCards(actuator, self.uuids, allow_changes=True, folder=self.folder)


class Job:
    """A running ``job.py``, which has changed the limit of its cards.

    Attributes:
        process: its process.
        watchdog: process id of its watchdog.
    """

    def __init__(self, machine: Machine, ending: str, value: float, count: int) -> None:
        words = [machine.kind, ending, str(value), *machine.uuids[:count]]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.powercap.safety.job", str(machine.folder), *words],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        found = self.process.stdout.readline().split()
        self.has_changed = found[:1] == ["changed"]
        self.watchdog = int(found[1]) if self.has_changed else 0

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal that ends the job, and wait for its end."""
        self.process.send_signal(number)
        self.process.wait()

    def end(self) -> str:
        """Let the job end, and return what it and its watchdog have printed to standard error."""
        return self.process.communicate("\n")[1]

    def kill_watchdog(self) -> None:
        """Kill the watchdog, and wait for its end."""
        os.kill(self.watchdog, signal.SIGKILL)
        slept_until(lambda: state(self.watchdog) == "Z")


def state(pid: int) -> str:
    """Return the state of a process, as ``/proc`` has it; "Z" also after its end was noticed."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"


def family(pid: int) -> list[int]:
    """Return a process and all that it has started, directly or not."""
    return [pid, *(one.pid for one in psutil.Process(pid).children(recursive=True))]


def slept_until(is_done: Callable[[], bool], *pids: int) -> float:
    """Wait until something is the case, and return for how long these processes have slept, s.

    That is the time in which none of them works, or waits for a processor or the disk, for which
    other programs are the reason. A pause of this process does not count either.
    """
    start_s = now_s = time.monotonic()
    slept_s = 0.0
    while not is_done():
        assert now_s - start_s < LONGEST_S
        time.sleep(0.005)
        before_s, now_s = now_s, time.monotonic()
        if all(state(pid) in "SZ" for pid in pids):
            slept_s += min(now_s - before_s, 0.05)
    return slept_s


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder for state files; the simulated cards are as new."""
    (tmp_path / "cards").mkdir()
    # A watchdog that ends holds its lock for longer if it has no processor.
    monkeypatch.setattr(gpu_lock, "_PATIENCE_S", LONGEST_S)
    monkeypatch.setenv(file_cards.VARIABLE, str(tmp_path / "cards"))
    return tmp_path / "state"


@pytest.fixture
def machine(
    request: pytest.FixtureRequest,
    folder: Path,
    fake_nvml: Callable[..., FakeNvml],
    monkeypatch: pytest.MonkeyPatch,
) -> Machine:
    """Provide two cards: in files, or of the kind that ``EVERY_KIND`` gives."""
    kind = getattr(request, "param", "files")
    if kind == "files":
        return Machine("files", folder, ("GPU-1", "GPU-2"))
    if kind == "hwmon":
        monkeypatch.setenv(SYSFS_VARIABLE, str(folder.parent / "sys"))
        for address in ADDRESSES:
            amd_card(folder.parent / "sys", address)
        return Machine("hwmon", folder, ADDRESSES)
    nvml = fake_nvml(Scenario(cards=(h200(Constant(300.0)),) * 2), virtual=False)
    for name in ("LD_LIBRARY_PATH", "FAKE_NVML_CONFIG"):  # for watchdogs of this process
        monkeypatch.setenv(name, nvml.env()[name])
    return Machine("nvml", folder, (card_uuid(0), card_uuid(1)))


@pytest.fixture
def start(machine: Machine) -> Iterator[Callable[..., Job]]:
    """Start jobs, which are killed after the test."""
    jobs: list[Job] = []

    def started(ending: str = "exits", value: float = 500.0, count: int = 1) -> Job:
        jobs.append(Job(machine, ending, value, count))
        return jobs[-1]

    yield started
    for job in jobs:
        job.process.kill()
        job.process.communicate()
