"""Run by ``test_run.py`` inside ``energy-callbacks run``: a fit and a test of Lightning."""

import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader, TensorDataset

from energy_callbacks.lightning import GpuEnergyCallback


class Module(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        return self.layer(batch[0]).square().mean()

    def test_step(self, batch: list[torch.Tensor], batch_idx: int) -> None:
        self.log("test_loss", self.layer(batch[0]).square().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


if __name__ == "__main__":
    loader = DataLoader(TensorDataset(torch.randn(800, 8)), batch_size=4)
    trainer = pl.Trainer(
        accelerator="cpu", max_epochs=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
        callbacks=[GpuEnergyCallback(devices=[0], country="DEU")],
    )  # fmt: skip
    module = Module()
    trainer.fit(module, loader)
    trainer.test(module, loader, verbose=False)
