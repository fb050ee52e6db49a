"""One rank of a training on two GPUs; ``two_cards`` starts it.

``python -m tests.gpu.two_ranks (lightning|huggingface|plain) FOLDER [--seconds 25] [--fake]``, the
latter two under torchrun. Wide layers in bf16 on random rows; the training ends by the clock, at
the same step of both ranks. The first rank works more: its card draws more power, so that swapped
cards are detected. Each rank writes the UUID of its card as PyTorch reports it. With ``--fake`` it
trains on the CPU, and the cards are those that ``CUDA_VISIBLE_DEVICES`` names, as on GPUs.
"""

import argparse
import itertools
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

_EXTRA_PASSES = 2
_INPUTS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Size of the model and of a batch."""

    width: int
    layers: int
    rows: int
    pause_s: float = 0.0


LARGE = Size(width=8192, layers=4, rows=1024)
FAKE = Size(width=16, layers=1, rows=4, pause_s=0.02)
BATCH = 8


class Net(torch.nn.Module):
    """Wide layers; the first rank passes them additional times without effect."""

    main_input_name = "rows"

    def __init__(self, size: Size) -> None:
        super().__init__()
        widths = [_INPUTS] + [size.width] * (size.layers + 1)
        parts = [
            part
            for one, other in itertools.pairwise(widths)
            for part in (torch.nn.Linear(one, other), torch.nn.GELU())
        ]
        self.layers = torch.nn.Sequential(*parts).to(torch.bfloat16)
        self.size = size
        self.extra = _EXTRA_PASSES if local_rank() == 0 else 0

    def forward(self, rows: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
        """Return the loss in a dict, as the Trainer expects."""
        time.sleep(self.size.pause_s)
        with torch.no_grad():
            for _ in range(self.extra):
                self.layers(rows)
        return {"loss": self.layers(rows).float().square().mean()}


class Rows(Dataset[dict[str, torch.Tensor]]):
    """A practically endless number of blocks of random rows."""

    def __init__(self, size: Size) -> None:
        self.blocks = torch.randn(64, size.rows, _INPUTS).to(torch.bfloat16)

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        block = self.blocks[index % len(self.blocks)]
        return {"rows": block, "labels": block[:1, :1]}


def local_rank() -> int:
    """Return the local rank that the launcher has set."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def visible() -> list[int]:
    """Return NVML's numbers of the cards, in the order in which CUDA counts them here."""
    return [int(entry) for entry in os.environ.get("CUDA_VISIBLE_DEVICES", "0,1").split(",")]


def settings(*, is_fake: bool, reads_all: bool) -> Mapping[str, Any]:
    """Return no settings on GPUs; on a CPU the cards that the framework would use there.

    Args:
        is_fake: whether this is a CPU.
        reads_all: whether the first rank of this framework reads the cards of all ranks.
    """
    if not is_fake:
        return {}
    cards = visible()[:2]
    return {"devices": cards if reads_all and local_rank() == 0 else [cards[local_rank()]]}


def card_uuid(*, is_fake: bool) -> str:
    """Return the UUID of the card on which this rank trains."""
    if not is_fake:
        return f"GPU-{torch.cuda.get_device_properties(local_rank()).uuid}"
    import pynvml

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(visible()[local_rank()])
    return str(pynvml.nvmlDeviceGetUUID(handle))


class Clock:
    """Ends the training of both ranks at the same step: the first rank's clock decides."""

    def __init__(self, seconds: float, device: torch.device) -> None:
        self._until_s = time.monotonic() + seconds
        self._device = device
        self._steps = 0

    def is_over(self) -> bool:
        """Whether the training ends after this step; decided every tenth step."""
        self._steps += 1
        if self._steps % 10:
            return False
        flag = torch.tensor([float(time.monotonic() > self._until_s)], device=self._device)
        torch.distributed.broadcast(flag, 0)
        return bool(flag.item())


def with_lightning(folder: Path, seconds: float, size: Size, *, is_fake: bool) -> None:
    """Train with Lightning, which starts the second rank itself."""
    import lightning.pytorch as pl

    from energy_callbacks.lightning import GpuEnergyCallback

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = Net(size)

        def training_step(self, batch: dict[str, torch.Tensor], batch_idx: int) -> torch.Tensor:
            return self.net(**batch)["loss"]

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=1e-3)

    ours = GpuEnergyCallback(report_dir=folder, **settings(is_fake=is_fake, reads_all=True))
    trainer = pl.Trainer(
        accelerator="cpu" if is_fake else "gpu", devices=2, strategy="ddp",
        precision="bf16-true", max_epochs=-1, max_time={"seconds": seconds},
        default_root_dir=folder, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, callbacks=[ours],
    )  # fmt: skip
    trainer.fit(Module(), DataLoader(Rows(size), batch_size=BATCH))


def with_huggingface(folder: Path, seconds: float, size: Size, *, is_fake: bool) -> None:
    """Train with the Trainer under torchrun."""
    from transformers import Trainer, TrainerCallback, TrainingArguments

    from energy_callbacks.huggingface import GpuEnergyCallback

    class StopAfter(TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.clock = Clock(seconds, args.device)

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            control.should_training_stop |= self.clock.is_over()

    ours = GpuEnergyCallback(report_dir=folder, **settings(is_fake=is_fake, reads_all=True))
    arguments = TrainingArguments(
        output_dir=str(folder), use_cpu=is_fake, ddp_backend="gloo" if is_fake else "nccl",
        max_steps=1_000_000, per_device_train_batch_size=BATCH, optim="sgd",
        logging_steps=50, save_strategy="no", report_to=[], disable_tqdm=True,
        dataloader_pin_memory=not is_fake, ddp_find_unused_parameters=False,
    )  # fmt: skip
    Trainer(
        model=Net(size), args=arguments, train_dataset=Rows(size), callbacks=[StopAfter(), ours]
    ).train()


def with_plain_loop(folder: Path, seconds: float, size: Size, *, is_fake: bool) -> None:
    """Train with a plain loop under torchrun; each rank reads its own card."""
    from energy_callbacks import EnergyConfig, EnergyMeter

    device = torch.device("cpu") if is_fake else torch.device("cuda", local_rank())
    if not is_fake:
        torch.cuda.set_device(device)
    torch.distributed.init_process_group("gloo" if is_fake else "nccl")
    model = torch.nn.parallel.DistributedDataParallel(Net(size).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    loader = DataLoader(Rows(size), batch_size=BATCH)
    config = EnergyConfig(report_dir=folder, **settings(is_fake=is_fake, reads_all=False))
    clock = Clock(seconds, device)
    with EnergyMeter(config=config) as meter, meter.phase("train"):
        for batch in loader:
            model(batch["rows"].to(device))["loss"].backward()
            optimizer.step()
            optimizer.zero_grad()
            meter.step(samples=BATCH)
            if clock.is_over():
                break


KINDS = {
    "lightning": with_lightning,
    "huggingface": with_huggingface,
    "plain": with_plain_loop,
}


def main() -> None:
    """Train as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=tuple(KINDS))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=25.0)
    parser.add_argument("--fake", action="store_true")
    asked = parser.parse_args()
    size = FAKE if asked.fake else LARGE
    KINDS[asked.kind](asked.folder, asked.seconds, size, is_fake=asked.fake)
    card = {"uuid": card_uuid(is_fake=asked.fake)}
    (asked.folder / f"card-{local_rank()}.json").write_text(json.dumps(card))
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
