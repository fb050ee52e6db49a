"""The contract: SIGTERM, as a scheduler sends it some time before it kills."""

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from energy_callbacks.report import EnergyReport, build, load
from tests.integrations.contract.lab import POWER_W, Lab
from tests.integrations.contract.sigterm_script import (
    CATCHES,
    EPOCH_STEPS,
    EPOCHS,
    HANGS,
    LAST_BATCH,
    RESUMES,
    STEP_S,
    WITHOUT_US,
    train,
)
from tests.integrations.processes import Script, Scripts

# By their folders: what is different in each training.
RUNS = {
    "without": (WITHOUT_US,),
    "with": (),
    "without, caught": (WITHOUT_US, CATCHES),
    "caught": (CATCHES,),
    "hung": (CATCHES, HANGS),
}
# Where each process has to import the framework, what Python itself does with SIGTERM stands for
# the trainings without us.
OF_PYTHON = {"without": -signal.SIGTERM, "without, caught": 143}
# Which of the others are there from the start where processes are not quick.
AT_ONCE = ("with", "caught")
# What a handler raises while native code calls Python is lost, without us too: seen once with Keras
# on JAX, in a hundred. A training that ended as if nothing had been is run again; one that always
# does so stays.
TRIES = 3
# Kubernetes and Slurm kill this long after SIGTERM. At the end a sensor is waited for three seconds
# and the journal as long, and the report is written, here beside four other processes. A machine
# that has taken longer than that to import a framework and train is too busy to tell.
LONGEST_END_S = 30.0
LIMIT_S = 600.0


class Training:
    """A training in a process of its own.

    Args:
        scripts: start it.
        lab: that trains, as ``MODULE:CLASS``.
        folder: where it trains.
        options: what is different in it.

    Attributes:
        status: how the process ended, negative where a signal ended it; ``None`` while it runs.
        signal_unix_s: when SIGTERM was sent; ``None`` where it was not.
        lived_s: how long it had taken to get there.
        end_s: how long it took to end from then on.
    """

    def __init__(self, scripts: Scripts, lab: str, folder: Path, options: tuple[str, ...]) -> None:
        folder.mkdir(exist_ok=True)
        self.script = Script(
            module="tests.integrations.contract.sigterm_script",
            folder=folder,
            arguments=(lab, *options),
        )
        self.status: int | None = None
        self.signal_unix_s: float | None = None
        self.lived_s = self.end_s = 0.0
        self._begun_unix_s = time.time()
        self._process = scripts.start(self.script)

    @property
    def is_at_last_batch(self) -> bool:
        """Whether SIGTERM is due."""
        batch = self.script.folder / "batch"
        return batch.exists() and int(batch.read_text() or 0) >= LAST_BATCH

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.signal_unix_s = time.time()
        self.lived_s = self.signal_unix_s - self._begun_unix_s
        os.kill(self._process.pid, signal.SIGTERM)

    def look(self) -> None:
        """See whether it has ended."""
        self.status = self._process.poll()
        if self.status is not None and self.signal_unix_s is not None:
            self.end_s = time.time() - self.signal_unix_s


def watch(trainings: Iterable[Training], *, terminates: bool) -> None:
    """Until all have ended, by SIGTERM at the last batch where so said."""
    running, limit_s = list(trainings), time.monotonic() + LIMIT_S
    while running:
        assert time.monotonic() < limit_s, [one.script.output for one in running]
        for training in running:
            if terminates and training.signal_unix_s is None and training.is_at_last_batch:
                training.terminate()
            training.look()
        running = [one for one in running if one.status is None]
        time.sleep(0.01)


class Terminated:
    """Trainings that got SIGTERM, and one that goes on from there.

    Args:
        scripts: start them.
        lab: that trains.
        folder: of their folders.
    """

    def __init__(self, scripts: Scripts, lab: Lab, folder: Path) -> None:
        self._folder = folder
        self._scripts = scripts
        self._lab = lab
        self._trainings: dict[str, Training] = {}
        self._train(RUNS if scripts.are_quick else AT_ONCE)
        shutil.copytree(folder / "with", folder / "as it was killed")

    def _train(self, names: Iterable[str]) -> None:
        started = {name: self._start(name) for name in names}
        watch(started.values(), terminates=True)
        for _ in range(1, TRIES):
            for name, training in started.items():
                if CATCHES in RUNS[name] and training.status == 0:
                    shutil.rmtree(self._folder / name)
                    started[name] = self._start(name)
                    watch([started[name]], terminates=True)
        self._trainings |= started

    def _start(self, name: str) -> Training:
        return self._begin(name, RUNS[name])

    def _begin(self, folder: str, options: tuple[str, ...]) -> Training:
        lab = f"{type(self._lab).__module__}:{type(self._lab).__name__}"
        return Training(self._scripts, lab, self._folder / folder, options)

    def resume(self) -> None:
        """Train on where a process was killed; in this one where another would not be quick."""
        if not self._scripts.are_quick:
            with contextlib.chdir(self._folder / "with"):
                train(self._lab, [RESUMES])
            return
        resumed = self._begin("with", (RESUMES,))
        watch([resumed], terminates=False)
        assert resumed.status == 0, resumed.script.output

    def training(self, name: str) -> Training:
        """One by its folder; begun now where it has not been."""
        if name not in self._trainings:
            self._train([name])
        return self._trainings[name]

    def status_without_us(self, name: str) -> int | None:
        """Exit status of a training that does not know us."""
        return self.training(name).status if self._scripts.are_quick else OF_PYTHON[name]

    def report(self, name: str) -> EnergyReport:
        """Built from the journals."""
        return build(self._folder / name / "energy")

    def saved_report(self, name: str) -> EnergyReport:
        """As the training has left it."""
        return load(self._folder / name / "energy" / "energy_report.json")


class TerminatedContract:
    """SIGTERM, in processes of their own and in real time."""

    lab: Lab

    @pytest.fixture(scope="class")
    @classmethod
    def terminated(cls, tmp_path_factory: pytest.TempPathFactory, scripts: Scripts) -> Terminated:
        """All of them."""
        return Terminated(scripts, cls.lab, tmp_path_factory.mktemp("terminated"))

    @pytest.mark.parametrize(
        ("name", "reference"),
        [("with", "without"), ("caught", "without, caught"), ("hung", "without, caught")],
        ids=["no handler", "a handler that exits", "a sensor hangs"],
    )
    def test_sigterm_ends_the_process_as_without_us(
        self, terminated: Terminated, name: str, reference: str
    ) -> None:
        """The same exit status, with a handler of the user's or none, even if a sensor hangs."""
        found = terminated.training(name)
        assert found.signal_unix_s
        assert found.status == terminated.status_without_us(reference), found.script.output
        assert found.end_s < max(LONGEST_END_S, found.lived_s)
        assert "Traceback" not in found.script.output

    @pytest.mark.parametrize("name", ["as it was killed", "caught"])
    def test_sigterm_costs_a_second_at_most(self, terminated: Terminated, name: str) -> None:
        """Time and energy of the report reach to within a second of the signal; it has an end."""
        report = terminated.report(name)
        ended = terminated.training("with" if name == "as it was killed" else name)
        assert ended.signal_unix_s is not None
        expected = "cut off" if ended.status and ended.status < 0 else "interrupted"
        assert report.run.status in (expected, "failed")
        lived_s = ended.signal_unix_s - report.run.started_unix_s
        assert lived_s - 1.0 <= report.run.duration_s <= lived_s + ended.end_s + 0.1
        assert report.energy.gpu.energy_j is not None
        assert report.energy.gpu.energy_j >= POWER_W * (lived_s - 1.0)
        assert LAST_BATCH - 1.0 / STEP_S <= report.throughput.steps <= LAST_BATCH + 5

    @pytest.mark.parametrize("name", ["caught", "hung"])
    def test_a_handler_of_sigterm_that_exits_leaves_a_saved_report(
        self, terminated: Terminated, name: str
    ) -> None:
        """As after an exception; where a sensor hangs it is written all the same, and says so."""
        assert terminated.training(name).status
        report = terminated.saved_report(name)
        assert report.run.status in ("failed", "interrupted")
        assert report.run.error
        assert report.throughput.steps >= LAST_BATCH
        codes = [warning.code for warning in report.warnings]
        assert ("source_hangs" in codes) == (name == "hung")

    def test_a_training_goes_on_after_sigterm(self, terminated: Terminated) -> None:
        """Resumed from its first epoch: each step counts once, and the energy of both."""
        terminated.resume()
        before, report = terminated.report("as it was killed"), terminated.report("with")
        first, second = report.attempts
        assert report.run.run_id == before.run.run_id
        assert (report.run.status, first.steps) == ("finished", before.throughput.steps)
        assert second.steps == (EPOCHS - 1) * EPOCH_STEPS
        assert report.throughput.steps == EPOCHS * EPOCH_STEPS
        assert report.throughput.replayed_steps == first.steps - EPOCH_STEPS
        assert before.energy.gpu.energy_j is not None
        assert report.energy.gpu.energy_j == pytest.approx(
            before.energy.gpu.energy_j + POWER_W * second.duration_s, rel=0.02
        )
