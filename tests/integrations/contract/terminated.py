"""The contract: SIGTERM, as a scheduler sends it some time before it kills."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from energy_callbacks.report import EnergyReport, build, load
from tests.integrations.contract.lab import POWER_W, STEP_S
from tests.integrations.contract.sigterm_script import EPOCH_STEPS, EPOCHS, LAST_BATCH, Ended

_ROOT = Path(__file__).parents[3]
# Kubernetes and Slurm kill this long after SIGTERM. At the end a sensor is waited for three seconds
# and the journal as long, and the report is written, here beside four other processes.
LONGEST_END_S = 30.0


@dataclass(frozen=True, kw_only=True)
class Terminated:
    """What five trainings and a resumed one have left, each in a folder of its own.

    Attributes:
        folder: of the folders.
        ended: how the processes ended, by the names in ``sigterm_script.RUNS``.
    """

    folder: Path
    ended: Mapping[str, Ended]

    def said(self, name: str) -> str:
        """By a process, on both streams."""
        return (self.folder / name / "said").read_text()

    def run_folder(self, name: str) -> Path:
        """Ours, wherever the framework has it."""
        [attempts] = (self.folder / name).rglob("attempts")
        return attempts.parent

    def report(self, name: str) -> EnergyReport:
        """Built from the journals."""
        return build(self.run_folder(name))


class TerminatedContract:
    """SIGTERM, in processes of their own and in real time."""

    @pytest.fixture(scope="class")
    @classmethod
    def terminated(cls, tmp_path_factory: pytest.TempPathFactory) -> Terminated:
        """All trainings of the script."""
        folder = tmp_path_factory.mktemp("terminated")
        lab = f"{type(cls.lab).__module__}:{type(cls.lab).__name__}"
        done = subprocess.run(
            [sys.executable, "-m", "tests.integrations.contract.sigterm_script", lab, str(folder)],
            cwd=_ROOT,
            env=os.environ | {"PYTHONPATH": os.pathsep.join((str(_ROOT), f"{_ROOT}/integrations"))},
            capture_output=True,
            text=True,
            timeout=240.0,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        ended = json.loads((folder / "ended.json").read_text())
        return Terminated(folder=folder, ended={name: Ended(**one) for name, one in ended.items()})

    @pytest.mark.parametrize(
        ("name", "reference"),
        [("with", "without"), ("caught", "without, caught"), ("hung", "without, caught")],
        ids=["no handler", "a handler that exits", "a sensor hangs"],
    )
    def test_sigterm_ends_the_process_as_without_us(
        self, terminated: Terminated, name: str, reference: str
    ) -> None:
        """The same exit status, with a handler of the user's or none, even if a sensor hangs."""
        found, without = terminated.ended[name], terminated.ended[reference]
        assert found.signal_unix_s
        assert found.status == without.status, terminated.said(name)
        assert found.end_s < LONGEST_END_S, without
        assert "Traceback" not in terminated.said(name)

    @pytest.mark.parametrize("name", ["as it was killed", "caught"])
    def test_sigterm_costs_a_second_at_most(self, terminated: Terminated, name: str) -> None:
        """Time and energy of the report reach to within a second of the signal; it has an end."""
        report = terminated.report(name)
        ended = terminated.ended["with" if name == "as it was killed" else name]
        expected = "cut off" if ended.status and ended.status < 0 else "interrupted"
        assert report.run.status in (expected, "failed")
        lived_s = ended.signal_unix_s - report.run.started_unix_s
        assert lived_s - 1.0 <= report.run.duration_s <= lived_s + ended.end_s + 0.1
        assert report.energy.gpu.energy_j is not None
        assert report.energy.gpu.energy_j >= POWER_W * (lived_s - 1.0)
        assert LAST_BATCH - 1.0 / STEP_S <= report.throughput.steps <= LAST_BATCH + 5

    def test_a_handler_of_sigterm_that_exits_leaves_a_saved_report(
        self, terminated: Terminated
    ) -> None:
        """As after an exception; where a sensor hangs it is written all the same, and says so."""
        caught, hung = (
            load(terminated.run_folder(name) / "energy_report.json") for name in ("caught", "hung")
        )
        for report in (caught, hung):
            assert report.run.status in ("failed", "interrupted")
            assert report.run.error
            assert report.throughput.steps >= LAST_BATCH
        assert "source_hangs" in [warning.code for warning in hung.warnings]
        assert "source_hangs" not in [warning.code for warning in caught.warnings]

    def test_a_training_goes_on_after_sigterm(self, terminated: Terminated) -> None:
        """Resumed from its first epoch: each step counts once, and the energy of both."""
        before, report = terminated.report("as it was killed"), terminated.report("with")
        first, second = report.attempts
        assert terminated.ended["resumed"].status == 0, terminated.said("with")
        assert report.run.run_id == before.run.run_id
        assert (report.run.status, first.steps) == ("finished", before.throughput.steps)
        assert second.steps == (EPOCHS - 1) * EPOCH_STEPS
        assert report.throughput.steps == EPOCHS * EPOCH_STEPS
        assert report.throughput.replayed_steps == first.steps - EPOCH_STEPS
        assert before.energy.gpu.energy_j is not None
        assert report.energy.gpu.energy_j == pytest.approx(
            before.energy.gpu.energy_j + POWER_W * second.duration_s, rel=0.02
        )
