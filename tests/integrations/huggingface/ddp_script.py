"""Run by ``test_ddp.py`` under torchrun: two processes on the CPU, the second slower at the end."""

import sys
import time
from pathlib import Path
from typing import Any

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

from energy_callbacks.huggingface import GpuEnergyCallback


class Model(torch.nn.Module):
    main_input_name = "input_ids"

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        time.sleep(0.02)
        return {"loss": self.layer(input_ids).square().mean()}


class SlowAtTheEnd(TrainerCallback):
    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        if "train_loss" in logs:
            time.sleep(1.0 * args.process_index)


if __name__ == "__main__":
    rows = torch.randn(800, 4)
    trainer = Trainer(
        model=Model(),
        args=TrainingArguments(
            output_dir=sys.argv[1],
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
        callbacks=[SlowAtTheEnd(), GpuEnergyCallback()],
    )
    metrics = trainer.train().metrics
    ours = [tag for tag in metrics if "/" in tag]
    (Path(sys.argv[1]) / f"tags-{trainer.args.process_index}.txt").write_text("\n".join(ours))
    # Else the process ends with an abort (transformers 5.23, torch 2.13, gloo).
    torch.distributed.destroy_process_group()
