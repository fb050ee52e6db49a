"""The contract: SIGTERM, which schedulers send some time before SIGKILL."""

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
    SENT,
    STEP_S,
    WITHOUT_US,
)
from tests.integrations.processes import Script, Scripts

# Options of each training, by the name of its folder.
RUNS = {
    "without": (WITHOUT_US,),
    "with": (),
    "without, caught": (WITHOUT_US, CATCHES),
    "caught": (CATCHES,),
    "hung": (CATCHES, HANGS),
}
# An exception that a signal handler raises while native code calls Python is lost, even without our
# callback: seen once in 100 runs, with Keras on JAX. A training with such a handler that exits with
# status 0 is therefore repeated, up to this number of runs in total.
TRIES = 3
# Kubernetes and Slurm send SIGKILL this long after SIGTERM. At its end, a training waits up to 3 s
# for a sensor and 3 s for the journal, and writes the report, while four other processes run. If a
# training took longer than this before SIGTERM, the machine is busy, and its end may take as long.
LONGEST_END_S = 30.0
LIMIT_S = 600.0


class Training:
    """A training in a separate process.

    Args:
        scripts: starts the process.
        lab: lab that trains, as ``MODULE:CLASS``.
        folder: working directory of the process.
        options: options of ``sigterm_script``.

    Attributes:
        status: exit status, negative if a signal ended the process; ``None`` while it runs.
        signal_unix_s: Unix time of SIGTERM; ``None`` if it has not been sent.
        seen_unix_s: Unix time, shortly before SIGTERM, up to which its files were examined.
        lived_s: time from the start of the process to SIGTERM, in s.
        end_s: time from SIGTERM to the end of the process, in s.
    """

    def __init__(self, scripts: Scripts, lab: str, folder: Path, options: tuple[str, ...]) -> None:
        folder.mkdir(exist_ok=True)
        self._options = options
        self.script = Script(
            module="tests.integrations.contract.sigterm_script",
            folder=folder,
            arguments=(lab, *options),
        )
        self.status: int | None = None
        self.signal_unix_s: float | None = None
        self.lived_s = self.end_s = self.seen_unix_s = 0.0
        self._begun_unix_s = time.time()
        self._process = scripts.start(self.script)

    @property
    def is_due(self) -> bool:
        """Return whether the training has reached ``LAST_BATCH``, so that SIGTERM is due.

        A training that the signal kills must have written all but the last second before. On a busy
        machine, its journal may be late.
        """
        batch = self.script.folder / "batch"
        if not batch.exists() or int(batch.read_text() or 0) < LAST_BATCH:
            return False
        self.seen_unix_s = time.time()
        return bool(self._options) or lacks_a_second_at_most(self.script.folder, self.seen_unix_s)

    def terminate(self) -> None:
        """Send SIGTERM to the process."""
        self.signal_unix_s = time.time()
        self.lived_s = self.signal_unix_s - self._begun_unix_s
        os.kill(self._process.pid, signal.SIGTERM)
        (self.script.folder / SENT).touch()

    def look(self) -> None:
        """Update ``status`` and ``end_s``."""
        self.status = self._process.poll()
        if self.status is not None and self.signal_unix_s is not None:
            self.end_s = time.time() - self.signal_unix_s


def lacks_a_second_at_most(folder: Path, unix_s: float) -> bool:
    """Return whether the files of a training have time, energy and steps up to 1 s before a time.

    Args:
        folder: working directory of the training, which is at ``LAST_BATCH`` or has ended there.
        unix_s: Unix time.
    """
    report = build(folder / "energy")
    first_s = float((folder / "first").read_text()) - report.run.started_unix_s
    lived_s = unix_s - report.run.started_unix_s
    return (
        report.run.duration_s >= lived_s - 1.0
        and (report.energy.gpu.energy_j or 0.0) >= POWER_W * (lived_s - first_s - 1.0)
        and report.throughput.steps >= LAST_BATCH - 1.0 / STEP_S
    )


def watch(trainings: Iterable[Training], *, terminates: bool) -> None:
    """Wait until all trainings have ended; send SIGTERM at ``LAST_BATCH`` if ``terminates``."""
    running, limit_s = list(trainings), time.monotonic() + LIMIT_S
    while running:
        assert time.monotonic() < limit_s, [one.script.output for one in running]
        for training in running:
            if terminates and training.signal_unix_s is None and training.is_due:
                training.terminate()
            training.look()
        running = [one for one in running if one.status is None]
        time.sleep(0.01)


class Terminated:
    """The trainings of ``RUNS``, which receive SIGTERM; one of them can be resumed.

    Args:
        scripts: starts their processes.
        lab: lab that trains.
        folder: parent of the folders of all trainings.
    """

    def __init__(self, scripts: Scripts, lab: Lab, folder: Path) -> None:
        self._folder = folder
        self._scripts = scripts
        self._lab = lab
        self._train()
        shutil.copytree(folder / "with", folder / "as it was killed")

    def _train(self) -> None:
        started = {name: self._start(name) for name in RUNS}
        watch(started.values(), terminates=True)
        for _ in range(1, TRIES):
            for name, training in started.items():
                if CATCHES in RUNS[name] and training.status == 0:
                    shutil.rmtree(self._folder / name)
                    started[name] = self._start(name)
                    watch([started[name]], terminates=True)
        self._trainings = started

    def _start(self, name: str) -> Training:
        return self._begin(name, RUNS[name])

    def _begin(self, folder: str, options: tuple[str, ...]) -> Training:
        lab = f"{type(self._lab).__module__}:{type(self._lab).__name__}"
        return Training(self._scripts, lab, self._folder / folder, options)

    def resume(self) -> None:
        """Resume the training ``with``."""
        resumed = self._begin("with", (RESUMES,))
        watch([resumed], terminates=False)
        assert resumed.status == 0, resumed.script.output

    def training(self, name: str) -> Training:
        """Return a training by its name in ``RUNS``."""
        return self._trainings[name]

    def lacks_a_second_at_most(self, name: str, unix_s: float) -> bool:
        """Return whether the files of a training have what was measured up to 1 s before a time."""
        return lacks_a_second_at_most(self._folder / name, unix_s)

    def report(self, name: str) -> EnergyReport:
        """Return the report of a training, built from its journals."""
        return build(self._folder / name / "energy")

    def saved_report(self, name: str) -> EnergyReport:
        """Return the report that the training itself saved."""
        return load(self._folder / name / "energy" / "energy_report.json")


class TerminatedContract:
    """SIGTERM, sent to trainings in separate processes and in real time."""

    lab: Lab

    @pytest.fixture(scope="class")
    @classmethod
    def terminated(cls, tmp_path_factory: pytest.TempPathFactory, scripts: Scripts) -> Terminated:
        """Return the trainings that received SIGTERM."""
        return Terminated(scripts, cls.lab, tmp_path_factory.mktemp("terminated"))

    @pytest.mark.parametrize(
        ("name", "reference"),
        [("with", "without"), ("caught", "without, caught"), ("hung", "without, caught")],
        ids=["no handler", "a handler that exits", "a sensor hangs"],
    )
    def test_sigterm_ends_the_process_as_without_the_callback(
        self, terminated: Terminated, name: str, reference: str
    ) -> None:
        """The exit status is the same, with or without a handler, and even if a sensor hangs."""
        found = terminated.training(name)
        assert found.signal_unix_s
        assert found.status == terminated.training(reference).status, found.script.output
        assert found.end_s < max(LONGEST_END_S, found.lived_s)
        assert "Traceback" not in found.script.output

    @pytest.mark.parametrize("name", ["as it was killed", "caught"])
    def test_sigterm_costs_a_second_at_most(self, terminated: Terminated, name: str) -> None:
        """The report lacks at most 1 s before the signal and states how the training ended."""
        report = terminated.report(name)
        ended = terminated.training("with" if name == "as it was killed" else name)
        assert ended.signal_unix_s is not None
        expected = "cut off" if ended.status and ended.status < 0 else "interrupted"
        assert report.run.status in (expected, "failed")
        assert terminated.lacks_a_second_at_most(name, ended.seen_unix_s)
        lived_s = ended.signal_unix_s - report.run.started_unix_s
        assert report.run.duration_s <= lived_s + ended.end_s + 0.1
        assert report.throughput.steps <= LAST_BATCH + 5

    @pytest.mark.parametrize("name", ["caught", "hung"])
    def test_a_handler_of_sigterm_that_exits_leaves_a_saved_report(
        self, terminated: Terminated, name: str
    ) -> None:
        """As after an exception, the report is saved; it names a sensor that hangs."""
        assert terminated.training(name).status
        report = terminated.saved_report(name)
        assert report.run.status in ("failed", "interrupted")
        assert report.run.error
        assert report.throughput.steps >= LAST_BATCH
        codes = [warning.code for warning in report.warnings]
        assert ("source_hangs" in codes) == (name == "hung")

    def test_a_training_continues_after_sigterm(self, terminated: Terminated) -> None:
        """After a resume from epoch 1, steps count once, and energy includes both attempts."""
        terminated.resume()
        before, report = terminated.report("as it was killed"), terminated.report("with")
        first, second = report.attempts
        assert report.run.run_id == before.run.run_id
        assert (report.run.status, first.steps) == ("finished", before.throughput.steps)
        assert second.steps == (EPOCHS - 1) * EPOCH_STEPS
        assert report.throughput.steps == EPOCHS * EPOCH_STEPS
        assert report.throughput.replayed_steps == first.steps - EPOCH_STEPS
        assert before.energy.gpu.energy_j is not None
        # No energy is known before the first reading, which may be late on a busy machine.
        assert second.energy.coverage > 0.5
        known_s = second.duration_s * second.energy.coverage
        assert report.energy.gpu.energy_j == pytest.approx(
            before.energy.gpu.energy_j + POWER_W * known_s, rel=0.02
        )
