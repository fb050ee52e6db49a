"""Phases of the step in a real Lightning training, which runs them inside the optimizer's step."""

from pathlib import Path
from typing import Any

import pytest

from energy_callbacks.lightning import GpuEnergyCallback
from energy_callbacks.profiling.phases import StepPhases
from tests.profiling.phases import lab

pytest.importorskip("lightning")


def test_phases_of_a_fit(tmp_path: Path) -> None:
    """Times and powers of forward, backward and optimizer."""
    import lightning.pytorch as pl
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    machine = lab.Machine()
    model, optimizer = lab.training(torch, machine)

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return self.inner(batch[0]).sum()

        def configure_optimizers(self) -> Any:
            return optimizer

    callback = GpuEnergyCallback(meter=machine.meter(tmp_path, StepPhases()))
    trainer = pl.Trainer(
        max_steps=140,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[callback],
    )
    trainer.fit(Module(), DataLoader(TensorDataset(torch.ones(8, 4)), batch_size=2))
    lab.check(callback.report().profile.step_phases)
