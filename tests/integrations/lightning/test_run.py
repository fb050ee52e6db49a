"""A real Lightning training inside ``energy-callbacks run``."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from energy_callbacks.report import load
from tests.fake_nvml import Constant, Scenario, env, h200

pytest.importorskip("lightning")
ROOT = Path(__file__).parents[3]
POWER_W = 300.0
SCRIPT = """
import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader, TensorDataset
from energy_callbacks.lightning import GpuEnergyCallback

class Module(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)
    def training_step(self, batch, batch_idx):
        return self.layer(batch[0]).square().mean()
    def test_step(self, batch, batch_idx):
        self.log("test_loss", self.layer(batch[0]).square().mean())
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

loader = DataLoader(TensorDataset(torch.randn(800, 8)), batch_size=4)
trainer = pl.Trainer(
    accelerator="cpu", max_epochs=1, logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False,
    callbacks=[GpuEnergyCallback(devices=[0], country="DEU")],
)
module = Module()
trainer.fit(module, loader)
trainer.test(module, loader, verbose=False)
"""


def test_fit_and_test_inside_a_command(tmp_path: Path) -> None:
    """Phases and steps of both, the card once, from the import of torch on."""
    scenario = Scenario(cards=(h200(Constant(POWER_W)),)).write(tmp_path / "scenario")
    paths = os.pathsep.join((str(ROOT), str(ROOT / "integrations")))
    sees_all = {key: value for key, value in env(scenario).items() if key != "CUDA_VISIBLE_DEVICES"}
    done = subprocess.run(
        [sys.executable, "-m", "energy_callbacks", "run", "--out", str(tmp_path / "run"), "--",
         sys.executable, "-c", SCRIPT],
        cwd=tmp_path,
        env=sees_all | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = load(tmp_path / "run" / "energy_report.json")
    assert (report.run.framework, report.run.status) == ("lightning", "finished")
    assert (report.throughput.steps, report.throughput.samples) == (200, 800)
    seconds = {phase.name: phase.duration_s for phase in report.phases}
    assert seconds["command"] > 1.0  # imports alone take longer
    assert seconds["train"] > 0.0
    assert seconds["test"] > 0.0
    gpu = report.energy.gpu
    truth_j = POWER_W * report.run.duration_s * gpu.coverage
    assert gpu.energy_j == pytest.approx(truth_j, abs=gpu.error_j)
    assert [device.key for device in report.devices if device.kind == "gpu"] == ["gpu0"]
    assert report.emissions is not None
    assert report.emissions.place == "Germany"
