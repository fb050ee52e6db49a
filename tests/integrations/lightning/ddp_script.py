"""Run by ``test_ddp.py``: two processes on the CPU, the second of them slower at the end."""

import argparse
import os
import time
from pathlib import Path

import lightning.pytorch as pl
import torch
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, TensorDataset

from energy_callbacks.lightning import GpuEnergyCallback
from energy_callbacks.report import save
from tests.integrations.ranks import cards_of, die, leave, pretend_host, wait_for_slow_ranks

DEATH_BATCH = 60


class Module(pl.LightningModule):
    def __init__(self, folder: Path, dying_rank: int | None, step_s: float) -> None:
        super().__init__()
        self.folder = folder
        self.step_s = step_s
        self.layer = torch.nn.Linear(4, 1)
        self.dying_rank = dying_rank

    def training_step(self, batch: list, batch_idx: int) -> torch.Tensor:
        time.sleep(self.step_s)
        if self.trainer.global_rank == self.dying_rank and batch_idx == DEATH_BATCH:
            die(self.folder / "energy", self.dying_rank)
        loss = self.layer(batch[0]).square().mean()
        self.log("train_loss", loss)
        return loss

    def on_train_end(self) -> None:
        time.sleep(1.0 * self.trainer.global_rank)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


def main() -> None:
    """Train as given on the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--strategy", default="ddp")
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--cards", choices=("two", "shared"))
    parser.add_argument("--dying-rank", type=int)
    parser.add_argument("--step-s", type=float, default=0.02)
    parser.add_argument("--max-energy-wh", type=float)
    parser.add_argument("--beside-the-logs", action="store_true")
    asked = parser.parse_args()
    wait_for_slow_ranks()
    if asked.nodes > 1:
        pretend_host(f"node{os.environ['NODE_RANK']}")
    folder = None if asked.beside_the_logs else asked.folder / "energy"
    callback = GpuEnergyCallback(
        report_dir=folder,
        max_energy_wh=asked.max_energy_wh,
        **cards_of(asked.cards, int(os.environ.get("LOCAL_RANK", "0"))),
    )
    trainer = pl.Trainer(
        accelerator="cpu", devices=2 // asked.nodes, num_nodes=asked.nodes,
        strategy=asked.strategy, max_epochs=1, log_every_n_steps=10, enable_progress_bar=False,
        default_root_dir=asked.folder,
        logger=CSVLogger(asked.folder, version=None if asked.beside_the_logs else 0),
        enable_checkpointing=False, callbacks=[callback],
    )  # fmt: skip
    data = TensorDataset(torch.randn(800, 4))
    module = Module(asked.folder, asked.dying_rank, asked.step_s)
    try:
        trainer.fit(module, DataLoader(data, batch_size=4))
    finally:
        leave()
    if asked.strategy != "ddp":  # the process that the user has started, whose ranks are gone
        save(callback.report(), asked.folder / "seen_by_the_parent")


if __name__ == "__main__":
    main()
