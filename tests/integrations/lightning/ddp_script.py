"""Run by ``test_ddp.py``: two processes on the CPU, the second of them slower at the end."""

import sys
import time
from pathlib import Path

import lightning.pytorch as pl
import torch
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, TensorDataset

from energy_callbacks.lightning import GpuEnergyCallback


class Module(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch: list, batch_idx: int) -> torch.Tensor:
        time.sleep(0.02)
        loss = self.layer(batch[0]).square().mean()
        self.log("train_loss", loss)
        return loss

    def on_train_end(self) -> None:
        time.sleep(1.0 * self.trainer.global_rank)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


if __name__ == "__main__":
    root = Path(sys.argv[1])
    trainer = pl.Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_epochs=1, log_every_n_steps=10,
        enable_progress_bar=False, default_root_dir=root, logger=CSVLogger(root, version=0),
        callbacks=[GpuEnergyCallback(report_dir=root / "energy")],
    )  # fmt: skip
    trainer.fit(Module(), DataLoader(TensorDataset(torch.randn(800, 4)), batch_size=4))
