"""Run by ``test_tuner_ddp.py``: two processes that search together; the second has less memory."""

import json
import sys
import time
from pathlib import Path

import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader, TensorDataset

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.lightning import BatchSizeTuner, tune_batch_size
from energy_callbacks.tuning import Patience
from tests.integrations.ranks import leave

MOST = (100, 24)


class Module(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.batch_size = 4
        self.trained: list[int] = []

    def training_step(self, batch: list, batch_idx: int) -> torch.Tensor:
        time.sleep(2e-4 * (1 + len(batch[0]) * (2 - self.global_rank)))
        if len(batch[0]) > MOST[self.global_rank]:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        loss = self.layer(batch[0]).square().mean()
        self.log("loss", loss, on_step=True, on_epoch=True, sync_dist=True)
        self.trained.append(len(batch[0]))
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


def main() -> None:
    """Search and train as given on the command line, and report the result of each rank."""
    folder, way = Path(sys.argv[1]), sys.argv[2]
    module, loader = Module(), DataLoader(TensorDataset(torch.randn(192, 4)), batch_size=4)
    options = {
        "objective": "largest",
        "patience": Patience(block_s=0.005, least_s=0.02, most_s=0.05, seen_s=0.2),
        "meter": EnergyMeter(config=EnergyConfig(report_dir=folder / "energy"), sources=[]),
    }
    tuner = BatchSizeTuner(**options)
    trainer = pl.Trainer(
        accelerator="cpu", devices=2, strategy="ddp" if way == "before" else way, max_epochs=1,
        logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=folder,
        callbacks=[] if way == "before" else [tuner, Tells(folder)],
    )  # fmt: skip
    if way == "before":
        result = tune_batch_size(trainer, module, train_dataloaders=loader, **options)
        trainer.callbacks.append(Tells(folder, result))
        loader = DataLoader(loader.dataset, batch_size=module.batch_size)
    trainer.fit(module, loader)
    leave()


class Tells(pl.Callback):
    """A callback that writes the result of its rank."""

    def __init__(self, folder: Path, result: object = None) -> None:
        self.folder = folder
        self.result = result

    def on_train_end(self, trainer: pl.Trainer, pl_module: Module) -> None:
        """Write the result, the sizes of the training, and a weight."""
        result = self.result or trainer.callbacks[0].result
        told = {
            "size": result.size,
            "ran": [t.size for t in result.trials if t.status == "ok"],
            "refused": [t.reason for t in result.trials if t.status != "ok"],
            "ranks": [t.ranks for t in result.trials],
            "trained": pl_module.trained,
            "weight": pl_module.layer.weight.tolist(),
        }
        (self.folder / f"rank{trainer.global_rank}.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main()
