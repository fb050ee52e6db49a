"""Run by ``test_ddp.py`` under torchrun: two processes on the CPU, the second slower at the end."""

import argparse
import os
import time
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

from energy_callbacks.huggingface import GpuEnergyCallback
from tests.integrations.ranks import cards_of, die, leave, wait_for_slow_ranks

DEATH_STEP = 60


class Model(torch.nn.Module):
    main_input_name = "input_ids"

    def __init__(self, step_s: float) -> None:
        super().__init__()
        self.step_s = step_s
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        time.sleep(self.step_s)
        return {"loss": self.layer(input_ids).square().mean()}


class SlowAtTheEnd(TrainerCallback):
    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        if "train_loss" in logs:
            time.sleep(1.0 * args.process_index)


class Death(TrainerCallback):
    """A callback that kills one rank in the middle of training."""

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if args.process_index == self.rank and state.global_step == DEATH_STEP:
            die(Path(args.output_dir) / "energy", self.rank)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cards", choices=("two", "shared"))
    parser.add_argument("--dying-rank", type=int)
    parser.add_argument("--step-s", type=float, default=0.02)
    parser.add_argument("--max-energy-wh", type=float)
    asked = parser.parse_args()
    wait_for_slow_ranks()
    ours = GpuEnergyCallback(
        max_energy_wh=asked.max_energy_wh,
        **cards_of(asked.cards, int(os.environ["LOCAL_RANK"])),
    )
    deaths = [] if asked.dying_rank is None else [Death(asked.dying_rank)]
    rows = torch.randn(800, 4)
    trainer = Trainer(
        model=Model(asked.step_s),
        args=TrainingArguments(
            output_dir=str(asked.folder),
            use_cpu=True,
            ddp_backend="gloo",
            num_train_epochs=1,
            per_device_train_batch_size=4,
            logging_steps=10,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            include_num_input_tokens_seen=True,
            dataloader_pin_memory=False,
        ),
        train_dataset=[{"input_ids": row, "labels": row[:1]} for row in rows],
        callbacks=[SlowAtTheEnd(), *deaths, ours],
    )
    try:
        metrics = trainer.train().metrics
    finally:
        leave()
    tags = [tag for tag in metrics if "/" in tag]
    (asked.folder / f"tags-{trainer.args.process_index}.txt").write_text("\n".join(tags))
