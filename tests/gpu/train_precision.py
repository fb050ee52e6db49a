"""One training of a matrix on a real GPU: ``energy-callbacks matrix tests/gpu/precision.toml``.

Trains the ResNet-18 of ``train_resnet`` for some epochs in one precision.
"""

import argparse
import tempfile

import lightning.pytorch as pl
import torch
from lightning.pytorch.loggers import CSVLogger

from energy_callbacks.lightning import GpuEnergyCallback
from tests.gpu.train_resnet import ResNet, loaders


def main() -> None:
    """Train once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--precision", required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--epochs", type=int, default=12)
    arguments = parser.parse_args()
    pl.seed_everything(arguments.seed)
    # fp32 must be fp32, not TF32.
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    trainer = pl.Trainer(
        accelerator="gpu",
        devices=1,
        precision=arguments.precision,
        max_epochs=arguments.epochs,
        logger=CSVLogger(tempfile.mkdtemp()),
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[GpuEnergyCallback()],
    )
    trainer.fit(ResNet(), *loaders())


if __name__ == "__main__":
    main()
