"""Run by ``test_arguments.py``: a training where only ``pytorch_lightning`` is installed.

It may begin in a process that has imported Lightning already, and forgets it.
"""

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset


def is_hidden(name: str) -> bool:
    """Whether a module is the newer package, or one of ours that may have imported it."""
    return name.partition(".")[0] in ("lightning", "energy_callbacks_lightning")


class Hidden(MetaPathFinder):
    """An import hook that hides the newer package."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: Any = None
    ) -> ModuleSpec | None:
        """See ``MetaPathFinder``."""
        if name.partition(".")[0] == "lightning":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


def hide() -> None:
    """Remove the module ``lightning`` from this process."""
    for name in [*filter(is_hidden, sys.modules), "energy_callbacks.lightning"]:
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, Hidden())
    find_spec = importlib.util.find_spec
    importlib.util.find_spec = lambda name, package=None: (
        None if name == "lightning" else find_spec(name, package)
    )


def main() -> None:
    """Train for an epoch."""
    hide()
    import pytorch_lightning as pl

    from energy_callbacks.lightning import BatchSizeTuner, GpuEnergyCallback, with_batch_size

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
            return self.layer(batch[0]).mean()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    ours = GpuEnergyCallback(report_dir="energy")
    trainer = pl.Trainer(
        accelerator="cpu", max_epochs=1, logger=False, enable_progress_bar=False,
        enable_checkpointing=False, callbacks=ours,
    )  # fmt: skip
    loader = DataLoader(TensorDataset(torch.randn(40, 4)), batch_size=8)
    trainer.fit(Module(), with_batch_size(loader, 4))
    assert ours.report().throughput.samples == 40, ours.report().throughput
    assert ours.report().throughput.steps == 10, ours.report().throughput
    assert issubclass(BatchSizeTuner, pl.Callback)
    assert not [name for name in sys.modules if name.partition(".")[0] == "lightning"]


if __name__ == "__main__":
    main()
