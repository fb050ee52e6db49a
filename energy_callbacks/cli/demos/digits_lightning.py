"""Trains a small network on the 1,797 handwritten digits of scikit-learn, with Lightning."""

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.loggers import TensorBoardLogger
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset, random_split

from energy_callbacks.lightning import GpuEnergyCallback


class DigitClassifier(pl.LightningModule):
    """Two convolutions and a linear layer for 8 x 8 images."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Conv2d(1, 32, 3, padding=1),
            torch.nn.ReLU(),
            torch.nn.Conv2d(32, 64, 3, padding=1),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
            torch.nn.Flatten(),
            torch.nn.Linear(64 * 4 * 4, 10),
        )

    def _loss_and_accuracy(self, batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
        images, labels = batch
        logits = self.net(images)
        accuracy = (logits.argmax(dim=1) == labels).float().mean()
        return torch.nn.functional.cross_entropy(logits, labels), accuracy

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:  # noqa: ARG002
        """Log and return the loss of a batch."""
        loss, _ = self._loss_and_accuracy(batch)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:  # noqa: ARG002
        """Log the loss and accuracy of a validation batch."""
        loss, accuracy = self._loss_and_accuracy(batch)
        self.log_dict({"val_loss": loss, "val_accuracy": accuracy}, prog_bar=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer Adam with a learning rate of 0.001."""
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def loaders(batch_size: int = 64) -> tuple[Any, Any]:
    """Return the data loaders for training (80 % of the digits) and validation (20 %)."""
    digits: Any = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16.0
    data = TensorDataset(images, torch.tensor(digits.target))
    train, held_out = random_split(data, [0.8, 0.2], torch.Generator().manual_seed(0))
    return (
        DataLoader(train, batch_size=batch_size, shuffle=True),
        DataLoader(held_out, batch_size=batch_size),
    )


def train(folder: Path, epochs: int, settings: dict[str, Any]) -> Path:
    """Train a ``DigitClassifier`` with ``GpuEnergyCallback``.

    Args:
        folder: root folder of Lightning's logs.
        epochs: number of passes over the training digits.
        settings: further keyword arguments of ``GpuEnergyCallback``.

    Returns:
        The run folder with the energy report.
    """
    pl.seed_everything(0, verbose=False)
    trainer = pl.Trainer(
        max_epochs=epochs,
        default_root_dir=folder,
        logger=TensorBoardLogger(folder, name="lightning_logs"),
        log_every_n_steps=10,
        callbacks=[GpuEnergyCallback(run_name="digits", **settings)],
    )
    trainer.fit(DigitClassifier(), *loaders())
    return Path(trainer.log_dir or folder) / "energy"
