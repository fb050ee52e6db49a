"""A Lightning training with its energy beside the loss: python examples/lightning_digits.py"""

import lightning as L
import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

from energy_callbacks.lightning import GpuEnergyCallback


class Digits(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10)
        )

    def training_step(self, batch, batch_idx):
        images, labels = batch
        loss = torch.nn.functional.cross_entropy(self.net(images), labels)
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


digits = load_digits()
data = TensorDataset(torch.tensor(digits.images, dtype=torch.float32), torch.tensor(digits.target))
trainer = L.Trainer(max_epochs=10, log_every_n_steps=10, callbacks=[GpuEnergyCallback()])
trainer.fit(Digits(), DataLoader(data, batch_size=64, shuffle=True))
